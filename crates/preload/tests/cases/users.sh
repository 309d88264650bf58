# Root takes other users and groups, in one process, in children, and before it becomes another program.
PYTHONDONTWRITEBYTECODE=1 python3 "$CASES/users.py"
chmod 755 .
