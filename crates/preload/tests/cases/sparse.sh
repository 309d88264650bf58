python3 "$CASES/sparse.py"
