#!/usr/bin/env bash
# setup.sh DIR: installs a real SGLang that runs on the CPU into DIR/venv and makes a tiny model in DIR/model-tiny.
# Needs python3.11 and about 2.5 GB. Does nothing where it was done before with the same recipe.
set -euo pipefail
dir=$1
here=$(cd "$(dirname "$0")" && pwd)/recipe
recipe=$(cat "$here"/*.txt "$here"/make_model.py | sha256sum | cut -d' ' -f1)
if [ -f "$dir/recipe" ] && [ "$(cat "$dir/recipe")" = "$recipe" ]; then
  echo "real SGLang: already in $dir"
  exit 0
fi
rm -rf "$dir"
mkdir -p "$dir"
python3.11 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q -r "$here/requirements-sglang-cpu.txt"
"$dir/venv/bin/pip" install -q --no-deps -r "$here/requirements-nodeps.txt"
PYTHONPATH="$here/stubs" "$dir/venv/bin/python" "$here/make_model.py" "$dir/model-tiny" 128 2 4 2 256
echo "$recipe" > "$dir/recipe"
