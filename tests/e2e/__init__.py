"""Real controllers of kinds of jobs under Sluice; `make e2e`, because they are built for it."""
