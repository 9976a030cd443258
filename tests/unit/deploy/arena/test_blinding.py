"""Sides are balanced, and the page says nothing of them without the key."""

from collections import Counter

from deploy.arena.blinding import arena_id, lefts, new_key, shuffled, token

KEY, OTHER = "11" * 32, "22" * 32


def test_a_token_is_of_one_pair_one_side_and_one_key() -> None:
    tokens = {token(key, prompt, side) for key in (KEY, OTHER) for prompt in ("p/0", "p/1") for side in ("a", "b")}  # type: ignore[arg-type]
    assert len(tokens) == 8
    assert all(len(one) == 32 for one in tokens)
    assert token(KEY, "p/0", "a") == token(KEY, "p/0", "a")


def test_each_side_stands_left_as_often_within_a_source() -> None:
    by_source = {name: [f"{name}/{i}" for i in range(n)] for name, n in (("x", 6), ("y", 5), ("z", 5))}
    chosen = lefts(KEY, by_source)
    counts = {name: Counter(chosen[i] for i in ids) for name, ids in by_source.items()}
    assert counts["x"] == {"a": 3, "b": 3}
    assert {counts["y"]["a"], counts["y"]["b"]} == {2, 3}
    assert Counter(chosen.values()) == {"a": 8, "b": 8}


def test_sides_and_order_follow_the_key_and_not_the_prompts() -> None:
    ids = [f"x/{i}" for i in range(40)]
    chosen = lefts(KEY, {"x": ids})
    assert chosen != lefts(OTHER, {"x": ids})
    assert shuffled(KEY, ids) != shuffled(OTHER, ids) != ids
    assert sorted(shuffled(KEY, ids)) == sorted(ids)
    # Neither half of the page's order belongs to one side.
    first = Counter(chosen[i] for i in shuffled(KEY, ids)[:20])
    assert min(first.values()) >= 4


def test_keys_are_fresh_and_their_arena_does_not_show_them() -> None:
    first, second = new_key(), new_key()
    assert first != second
    assert len(bytes.fromhex(first)) == 32
    assert arena_id(first) not in first
    assert arena_id(first) != arena_id(second)
