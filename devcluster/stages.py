"""Fills in how long fake pods run by default in `kwok/stages.yaml`; the file itself says all else that they do."""

from pathlib import Path

STAGES_FILE = Path(__file__).parent / "kwok" / "stages.yaml"
PLACEHOLDER = "${DEFAULT_POD_MILLISECONDS}"


def render_stages(default_pod_seconds: float) -> str:
    """The Stage objects as YAML; raises ValueError when the duration is negative."""
    if default_pod_seconds < 0:
        raise ValueError(f"default_pod_seconds is {default_pod_seconds}, it cannot be negative")
    return STAGES_FILE.read_text().replace(PLACEHOLDER, str(round(default_pod_seconds * 1000)))
