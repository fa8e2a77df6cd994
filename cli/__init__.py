"""The `sluice` command, and the generators of what is made from the code."""
