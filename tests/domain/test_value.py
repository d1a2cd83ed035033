"""Values never change, are compared by their fields, and print no field that is hidden."""

import pytest

from sightline.domain.value import Value, hiding, replace


class Key(Value):
    name: str
    secret: str = ""
    tags: tuple[str, ...] = ()

    __repr__ = hiding("secret")


KEY = Key("a", "s3cret", ("x",))


def test_a_field_cannot_be_set():
    with pytest.raises(AttributeError, match="immutable"):
        KEY.name = "b"
    assert KEY.name == "a"


def test_equal_fields_make_equal_values_with_one_hash():
    same = Key("a", "s3cret", ("x",))
    assert same == KEY
    assert {same, KEY} == {KEY}
    assert replace(KEY, secret="other") != KEY


def test_a_copy_has_the_fields_that_are_named_and_keeps_the_others():
    assert replace(KEY, name="b") == Key("b", "s3cret", ("x",))
    with pytest.raises(TypeError, match="colour"):
        replace(KEY, colour="red")


@pytest.mark.parametrize("shown", [repr, str, "{}".format, "{!r}".format, lambda key: repr([key])])
def test_a_hidden_field_is_not_printed(shown):
    assert "s3cret" not in shown(KEY)
    assert "Key(name='a', tags=('x',))" in shown(KEY)
