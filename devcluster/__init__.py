"""A real local Kubernetes control plane, so that Sluice runs and is tested against the true API server.

`devcluster.cluster.DevCluster` starts and ends one; `python -m devcluster` does the same from a shell. It knows
nothing of Sluice's services and is never imported by them.
"""
