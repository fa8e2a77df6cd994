"""Load and benchmark runs: how fast the product is, measured and written down. No part of the product imports it."""
