"""Kueue's own controller and Sluice, one after the other on the same objects; `make handback`, because Kueue is built for it."""
