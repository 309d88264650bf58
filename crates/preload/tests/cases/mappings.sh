# Shared mappings that programs write to: one memory for all of them, and one with what is read and written.
python3 "$CASES/mappings.py"
