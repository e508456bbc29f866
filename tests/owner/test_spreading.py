"""Which partitions a server takes and gives up: by any number of servers that come and go, all partitions end up owned, evenly."""

from __future__ import annotations

import random

import pytest

from detent.owner.spreading import LEADING, partition_to_give_up, partition_to_take


def settled(owners: dict[int, str | None], members: list[str], chance: random.Random) -> int:
    """Let servers act by turns, in any order, until none wants to; gives the number of moves."""
    moves, idle = 0, 0
    while idle < 20 * len(members):
        server = chance.choice(members)
        taken, given = partition_to_take(server, owners, members), partition_to_give_up(server, owners, members)
        if taken is not None:
            owners[taken] = server
        elif given is not None:
            owners[given] = None
        idle = idle + 1 if taken is None and given is None else 0
        moves += idle == 0
        assert moves < 1_000, "it never settles"
    return moves


@pytest.mark.parametrize("seed", range(30))
def test_servers_that_come_and_go_share_all_partitions_evenly(seed: int) -> None:
    chance = random.Random(seed)
    partitions, members = chance.randint(1, 12), ["a"]
    owners: dict[int, str | None] = dict.fromkeys(range(partitions))
    owners[LEADING] = "a"
    for step in range(12):
        if len(members) > 1 and chance.random() < 0.5:
            gone = members.pop(chance.randrange(1, len(members)))
            owners = {partition: None if owner == gone else owner for partition, owner in owners.items()}
        else:
            members.append(f"s{step}")
        settled(owners, members, chance)
        counts = [list(owners.values()).count(server) for server in members]
        assert sum(counts) == partitions
        assert max(counts) - min(counts) <= 1
        assert owners[LEADING] == "a", "the leader has never a reason to give up leading"
        assert settled(owners, members, chance) == 0


def test_a_server_that_does_not_take_part_and_a_process_of_another_kind_are_left_alone() -> None:
    owners: dict[int, str | None] = {0: "a", 1: "run", 2: None}
    assert partition_to_take("b", owners, ["a"]) is None
    assert partition_to_take("b", owners, ["a", "b"]) == 2
    assert partition_to_give_up("run", owners, ["a", "b"]) is None
    assert partition_to_take("a", {0: None}, ["a"]) is None, "the first partition is taken by who wants to lead"
