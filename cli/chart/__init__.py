"""The Helm chart, generated from the kustomize manifests: what they say is said once, the chart only adds where a value goes."""
