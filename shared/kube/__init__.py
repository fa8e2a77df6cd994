"""Kubernetes as the gateway needs it: calls with raw JSON, list and watch, a leader Lease, a budget for writes.

Bytes in, bytes out; what the bytes mean is shared.api's business. Nothing here decides anything.
"""
