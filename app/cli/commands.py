"""Loads commands, and settings, when they are needed, so that help comes at once, and prints that help.

The list of all commands is in app/cli/main.py; a command's file has its function, or a group of functions.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from app.errors import UsageError
from app.terminal import complain
from extractors.errors import ReelwordError

MOST_COLUMNS = 10_000  #: help is as wide as the terminal; without a number it ends at 80 columns


class Command(TyperCommand):
    """Prints its options below the headings that they have."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments and each group of options as two columns."""
        records: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            heading = "Arguments" if parameter.param_type_name == "argument" else "Options"
            record = parameter.get_help_record(ctx)
            if record is not None:
                records.setdefault(getattr(parameter, "rich_help_panel", None) or heading, []).append(record)
        for heading, rows in records.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class ListedCommand(TyperCommand):
    """Stands for a command in the list; its module is imported when it is called.

    Args:
        name: of the command, and of the function or ``typer.Typer`` in the module.
        module: its dotted name.
        help: a sentence, which is the command's help too.
    """

    def __init__(self, name: str, module: str, help: str) -> None:  # noqa: A002 - typer's word
        super().__init__(name, help=help, rich_markup_mode=None)
        self._module = module

    def load(self) -> TyperCommand | TyperGroup:
        """Imports the command and makes it of its function or its group of functions."""
        from app.cli.model_options import expand_fields

        target = getattr(import_module(self._module), str(self.name))
        app = target
        if not isinstance(target, typer.Typer):
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(self.name)(target)
        app.rich_markup_mode, app.info.help = None, self.help
        for each in app.registered_commands:
            each.cls = Command
            each.callback = expand_fields(each.callback) if each.callback else None
            each.help = self.help if app is not target else each.help
        if app.registered_callback is not None and app.registered_callback.callback is not None:
            app.registered_callback.callback = expand_fields(app.registered_callback.callback)
        command = get_command(app)
        assert isinstance(command, TyperCommand | TyperGroup)
        return command

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002
        """Returns the whole sentence: the list of commands breaks its lines, and cuts none."""
        return str(self.help)

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Makes the context of the command that is loaded."""
        return self.load().make_context(info_name, args, parent, **extra)


class CommandList(TyperGroup):
    """Ends a command that meets an error of ours with the sentence that the error is."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Exits with 2 for a UsageError, with 1 for any other of ours."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            complain(str(error))
            raise typer.Exit(2) from error
        except ReelwordError as error:
            complain(error.advice)
            raise typer.Exit(1) from error


def make_program(
    package: str, commands: Mapping[str, tuple[str, str]], help_line: str, *, add_completion: bool = False
) -> typer.Typer:
    """Makes a program of commands that are imported when they are called.

    Args:
        package: dotted name of the package that the commands' modules lie in.
        commands: of each command its module below the package, in which a function or a group has the
            command's name, and the sentence that is its help.
    """

    class Commands(CommandList):
        """Holds the commands, none of them imported."""

        def __init__(self, **named: Any) -> None:
            super().__init__(**named)
            for name, (module, sentence) in commands.items():
                self.add_command(ListedCommand(name, f"{package}.{module}", sentence))

    return typer.Typer(
        cls=Commands,
        add_completion=add_completion,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": MOST_COLUMNS},
        help=help_line,
    )
