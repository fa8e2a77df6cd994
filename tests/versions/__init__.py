"""Other versions of Kubernetes beside the one that all other tests run on; `make versions`, because two control planes are built for it."""
