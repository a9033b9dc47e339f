"""A worker's environment looks its tasks up once, whatever is registered on the machine."""

from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.hosted import HostedEnv
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.spec import TaskSource


class Counted(Catalog):
    """Counts how often somebody asks for an environment's tasks."""

    asked = 0

    def tasks(self, name: str, canonical: str) -> TaskSource:
        self.asked += 1
        return super().tasks(name, canonical)


def test_a_thousand_resets_look_up_the_tasks_once() -> None:
    catalog = Counted()
    hosted = HostedEnv(catalog, host.HostMakeItem(env_id="e1", env="frozen_lake", params_json="{}"))
    for sequence in range(1, 1001):
        hosted.reset(
            pb.ResetRequest(
                env_id="e1",
                sequence=sequence,
                idempotency_key=f"k{sequence}",
                task_id=f"train/{sequence}",
                seed=1,
            )
        )
    assert catalog.asked == 1
