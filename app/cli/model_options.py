"""Makes options of the command line out of values: each field of a model or a dataclass becomes an option.

    def caption(options: Annotated[CaptionOptions, FieldsOf("How captions are searched")], …) -> None: …

``expand_fields`` turns such a parameter into ``--beam-size``, ``--max-length`` …, with the types, ranges,
defaults and descriptions that the fields have, and hands the function the value that is made of them. A field
that the model gets is an option of every command that takes the model.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from app.errors import UsageError
from models.decoding.options import DecodingOptions, first_fault

if TYPE_CHECKING:
    from app.settings import Settings

OptionsT = TypeVar("OptionsT", bound=DecodingOptions)
PLAIN = (bool, int, float, str, Path, list[str])  #: types that an option can have by itself


@dataclass(frozen=True)
class FieldsOf:
    """Marks a parameter whose fields are options."""

    panel: str | None = None  #: the heading that the options stand below in the help
    first: tuple[str, ...] = ()  #: fields that stand before the others
    leave_out: tuple[str, ...] = ()  #: fields that are no options
    #: Where it is given, the function gets a mapping of what was typed of its fields, and nothing is checked.
    model: type[BaseModel] | None = None


def expand_fields(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with an option for each field of its marked parameters."""
    signature = inspect.signature(function, eval_str=True)
    marked = {
        name: (parameter.annotation.__origin__, mark)
        for name, parameter in signature.parameters.items()
        for mark in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(mark, FieldsOf)
    }
    if not marked:
        return function
    options = {name: list(_list_options(value_type, mark)) for name, (value_type, mark) in marked.items()}
    flat = [
        each
        for name, parameter in signature.parameters.items()
        for each in options.get(name, [parameter.replace(kind=Parameter.KEYWORD_ONLY)])
    ]

    def run(**values: Any) -> Any:
        for name, (value_type, mark) in marked.items():
            typed = {option.name: values.pop(option.name) for option in options[name]}
            values[name] = _make_value(value_type, mark, typed)
        return function(**values)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in flat}
    return run


def _list_options(value_type: type, mark: FieldsOf) -> Iterable[Parameter]:
    model = mark.model or value_type
    if issubclass(model, BaseModel):
        for field_name in dict.fromkeys((*mark.first, *model.model_fields)):
            if field_name not in mark.leave_out:
                field = model.model_fields[field_name]
                name = field.alias or field_name
                annotation: Any = Annotated[_option_type(field), _describe(name, field, mark)]
                yield Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        return
    for parameter in inspect.signature(model, eval_str=True).parameters.values():
        _, option = get_args(parameter.annotation)
        option.rich_help_panel = mark.panel
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)


def _option_type(field: FieldInfo) -> Any:
    """Returns the type of a field's option: None where it is not typed; text for what no option can be."""
    types = [each for each in _list_types(field.annotation) if each is not type(None)]
    is_plain = len(types) == 1 and (types[0] in PLAIN or get_origin(types[0]) is Literal)
    return (types[0] if is_plain else str) | None


def _list_types(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _describe(name: str, field: FieldInfo, mark: FieldsOf) -> Any:
    flag = f"--{name.replace('_', '-')}"
    is_flag = bool in _list_types(field.annotation)
    return typer.Option(
        f"{flag}/--no-{flag[2:]}" if is_flag else flag,
        help=_explain(field, with_default=mark.model is None),
        min=_bound(field, "ge"),
        max=_bound(field, "le"),
        show_default=False,
        rich_help_panel=mark.panel,
        **_reading_of(field),
    )


def _bound(field: FieldInfo, kind: str) -> Any:
    return next((getattr(each, kind) for each in field.metadata if hasattr(each, kind)), None)


def _explain(field: FieldInfo, *, with_default: bool) -> str:
    """Writes the help: what the API says of itself is said of the command of the same name."""
    text = (field.description or "").replace("GET /models", "models")
    if not with_default or field.default is None:
        return text
    default = (
        {True: "on", False: "off"}.get(field.default) if isinstance(field.default, bool) else field.default
    )
    return f"{text} Default: {default}."


def _reading_of(field: FieldInfo) -> dict[str, Any]:
    """Reads a number or a text as the number where it is one."""
    if not {float, str} <= set(_list_types(field.annotation)):
        return {}
    return {"parser": _read_number, "metavar": "NUMBER|TEXT"}


def _read_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _make_value(value_type: type, mark: FieldsOf, typed: Mapping[str, Any]) -> Any:
    if mark.model is not None:
        return {name: value for name, value in typed.items() if value is not None}
    if not issubclass(value_type, BaseModel):
        return value_type(**typed)
    with _naming_option():
        return value_type.model_validate({name: value for name, value in typed.items() if value is not None})


def change_options(options: OptionsT, **changes: Any) -> OptionsT:
    """Returns options of decoding with some changed. Raises UsageError, which names the option."""
    with _naming_option():
        return options.changed(**changes)


@contextmanager
def _naming_option() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        name, fault = first_fault(error)
        option = f"--{name.replace('_', '-')}: " if name else ""
        raise UsageError(f"{option}{fault}.") from error


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Streams = Annotated[
    str | None,
    typer.Option(help="Stream set, see models --sets; default: the one each captioner was trained on."),
]


def settings_with(**changes: object) -> "Settings":
    """Reads the settings, changed by what a command line says (None is nothing). Raises UsageError."""
    from app.settings import load_settings

    named = {name: value for name, value in changes.items() if value is not None}
    return load_settings().model_copy(update=named)
