# Names of every kind, links in circles, paths that climb out, bytes that are no text.
PYTHONDONTWRITEBYTECODE=1 python3 "$CASES/names.py" | sed "s|$PWD|HERE|g"
