"""Load shapes and what runs them: how fast, how much, with how many API writes. Reads and writes the Kubernetes API only."""
