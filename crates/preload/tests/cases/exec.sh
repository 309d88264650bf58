# Programs that become others, and programs and scripts that lie here.
cc -w -O1 -o "$SCRATCH/exec" "$CASES/exec.c" || exit 1
printf '#include <stdio.h>\nint main(int n, char **a) { return printf("program %%s %%s\\n", a[0], n > 1 ? a[1] : "") < 0; }\n' > hello.c
cc -o program hello.c || exit 1
mkdir bin
cp program bin/program
printf '#!/bin/sh -e\necho "script ${0##*/} $*"\n' > script
printf '#!%s/script with arguments\n' "$PWD" > nested
echo 'echo "plain ${0##*/} $1"' > plain
echo input > input
chmod +x script nested plain
$SCRATCH/exec | sed "s|$PWD|HERE|g"
cat out spawned seven
./program by shell
./script by shell
./plain by shell
sh script by sh
./nested by shell | sed "s|$PWD|HERE|g"
chmod -x script
./script
(cd bin && ../program .. && ./program .)
env PATH="$PWD/bin:$PATH" program found
rm nested program bin/program
