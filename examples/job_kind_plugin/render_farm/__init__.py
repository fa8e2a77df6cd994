"""RenderFarm for Sluice."""
