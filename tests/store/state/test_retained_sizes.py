"""The table of sizes: what was remembered is known, within its bound."""

from random import Random

from embermq.store.state.retained_sizes import ABSENT, SIZE_BITS, SIZE_MASK, UNKNOWN, Sizes, known


def test_what_was_remembered_last_is_known_and_nothing_else() -> None:
    random = Random(5)
    keys = [b"key%d" % number for number in range(20)]
    for _ in range(50):
        sizes, model = Sizes(2, 14), dict[bytes, int]()  # so few slots that searches meet, wrap around, and it grows
        for _ in range(30):
            some = random.sample(keys[:14], random.randint(1, 3))
            values = [random.choice((UNKNOWN, ABSENT, known(random.randint(1, 9), 5))) for _ in some]
            if len(model.keys() | set(some)) + len(some) > 14:
                continue
            sizes.remember(some, values)
            model.update(zip(some, values, strict=True))
            assert sizes.look_up(keys) == [model.get(key, UNKNOWN) for key in keys]


def test_the_table_is_bounded() -> None:
    sizes = Sizes(topics_max=3)
    sizes.remember([b"a", b"b", b"c"], [1, 2, 3])
    assert sizes.look_up([b"a", b"b", b"c"]) == [1, 2, 3]
    sizes.remember([b"d"], [4])
    assert sizes.look_up([b"a", b"b", b"c", b"d"]) == [UNKNOWN, UNKNOWN, UNKNOWN, 4]


def test_of_a_state_that_began_empty_every_topic_is_known_while_the_table_has_place() -> None:
    sizes = Sizes(slots_first=2, topics_max=3)
    sizes.forget(is_all_absent=True)
    assert sizes.look_up([b"a", b"b"]) == [ABSENT, ABSENT]
    sizes.remember([b"a", b"b"], [1, UNKNOWN])
    assert sizes.look_up([b"a", b"b", b"c"]) == [1, UNKNOWN, ABSENT]
    sizes.remember([b"c", b"d"], [3, 4])
    assert sizes.look_up([b"a", b"b", b"c", b"d", b"e"]) == [UNKNOWN, UNKNOWN, 3, 4, UNKNOWN]
    sizes.forget()
    assert sizes.look_up([b"c"]) == [UNKNOWN]


def test_a_table_that_grows_forgets_nothing() -> None:
    sizes = Sizes(2)
    keys = [b"key%d" % number for number in range(5_000)]
    for number, key in enumerate(keys):
        sizes.remember([key], [number + 1])
    assert sizes.look_up(keys) == list(range(1, 5_001))
    assert sizes.look_up([b"another"]) == [UNKNOWN]


def test_a_group_larger_than_the_table_is_not_remembered() -> None:
    sizes = Sizes(topics_max=3)
    sizes.remember([b"a"], [1])
    sizes.remember([b"b", b"c", b"d", b"e"], [2, 3, 4, 5])
    assert sizes.look_up([b"a", b"b", b"e"]) == [UNKNOWN, UNKNOWN, UNKNOWN]


def test_only_what_fits_is_known() -> None:
    assert known(7, SIZE_MASK) == 7 << SIZE_BITS | SIZE_MASK
    assert known(7, SIZE_MASK + 1) == UNKNOWN
    largest = (1 << 63 - SIZE_BITS) - 1
    sizes = Sizes()
    sizes.remember([b"a"], [known(largest, SIZE_MASK)])
    assert sizes.look_up([b"a"]) == [largest << SIZE_BITS | SIZE_MASK]
    assert known(largest + 1, 1) == UNKNOWN
