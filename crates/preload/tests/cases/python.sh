# What programs do with files in Python.
python3 "$CASES/python.py"
