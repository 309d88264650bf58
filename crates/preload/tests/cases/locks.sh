# Locks: by Python, by the program flock that keeps and leaves them, and by a counter under contention.
export PYTHONPATH="$CASES" PYTHONDONTWRITEBYTECODE=1
python3 "$CASES/locks.py"
exec 9> lockfile
flock 9
flock -n lockfile true || echo refused
(flock -n 9 && echo inherited)
exec 9>&-
flock -n lockfile echo free again
echo 0 > counter
for i in $(seq 6); do
    (for j in $(seq 10); do
        flock counter.lock sh -c 'echo $(($(cat counter) + 1)) > counter'
    done) &
done
wait
cat counter
