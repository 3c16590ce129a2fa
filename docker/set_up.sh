#!/bin/sh
# Sets up the packages of an image: set_up.sh TARGET of the Makefile …
# EXTRAS: further ones by name. DETECTRON2=yes: that as well. TORCH, TORCH_INDEX: which build of torch.
set -eu
for extra in ${EXTRAS:-}; do
    set -- "$@" "setup-$extra"
done
[ "${DETECTRON2:-no}" != yes ] || set -- "$@" setup-extractors setup-detectron2
make "$@"
# Compiled here, as the images' systems are read-only; pip is not needed in them.
.venv/bin/python -m pip uninstall --yes --quiet pip
# Some packages carry files for other Pythons.
python -m compileall -qq .venv/lib || true
