"""Logs, traces and the table of metrics."""
