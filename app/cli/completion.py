"""Prints the script that makes bash complete commands and options: ``reelword completion``.

Typer answers what the script asks, but its own script completes one word, and this program may be python with
two words after it.
"""

import typer

COMPLETE_VARIABLE = "_REELWORD_COMPLETE"
BASH_SCRIPT = f"""_reelword_completion() {{
    local IFS=$'\\n'
    if [[ $COMP_CWORD -gt 2 && ${{COMP_WORDS[1]}} == -m && ${{COMP_WORDS[2]}} == app ]]; then
        COMPREPLY=( $( COMP_WORDS="app ${{COMP_WORDS[*]:3}}" COMP_CWORD=$((COMP_CWORD - 2)) \\
            {COMPLETE_VARIABLE}=complete_bash "$1" -m app 2>/dev/null ) )
    elif [[ ${{1##*/}} == reelword ]]; then
        COMPREPLY=( $( COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD=$COMP_CWORD \\
            {COMPLETE_VARIABLE}=complete_bash "$1" 2>/dev/null ) )
    fi
}}
complete -o bashdefault -o default -F _reelword_completion python python3 reelword"""


def completion() -> None:
    """Prints the script."""
    typer.echo(BASH_SCRIPT)
