"""render.example.com/v1 RenderFarm: `spec.artists` pods that draw, and one painter. `spec.paused` holds both back."""

from shared.jobs.manifest import JsonObject, number, text
from shared.jobs.protocol import Finished
from shared.jobs.templated_kind import Role, TemplatedKind


class RenderFarm(TemplatedKind):
    """See shared.jobs.protocol.JobKind."""

    group = "render.example.com"
    version = "v1"
    kind = "RenderFarm"
    plural = "renderfarms"
    framework = "render.example.com/renderfarm"
    suspend_path = ("spec", "paused")

    def roles(self, job: JsonObject) -> tuple[Role, ...]:
        artists = number(job, "spec", "artists", default=1)
        return (
            Role(name="artist", count=artists, place=("spec", "artist"), field="spec.artist"),
            Role(name="painter", count=1, place=("spec", "painter"), field="spec.painter"),
        )

    def finished(self, job: JsonObject) -> Finished | None:
        phase = text(job, "status", "phase")
        if phase not in ("Done", "Broken"):
            return None
        return Finished(success=phase == "Done", message=text(job, "status", "message"))

    def active(self, job: JsonObject) -> bool:
        return number(job, "status", "pods", default=0) > 0

    def pods_ready(self, job: JsonObject) -> bool:
        return number(job, "status", "ready", default=0) >= number(job, "spec", "artists", default=1) + 1

    def reclaimable(self, job: JsonObject) -> dict[str, int]:
        # Artists go one by one when there is nothing left to draw; the painter stays to the end.
        done = number(job, "status", "artistsDone", default=0)
        return {"artist": done} if done else {}
