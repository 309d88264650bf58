# What coreutils, findutils, and their kin do with files.
set -e
mkdir -p d/e/f
printf 'one\ntwo\n' > d/one
seq 1 200000 > d/big
cp d/one d/e/copy
cp -a d d2
cp -r d d3
cp --reflink=auto d/big d/big2
cmp d/big d/big2
dd if=d/big of=d/dd bs=4k conv=fsync status=none
cmp d/big d/dd
dd if=/dev/zero of=d/sparse bs=1k count=1 seek=1000 status=none
stat -c '%s %F %a' d/sparse
cat d/one d/one | sort -r > sorted
cat sorted
sort -o d/sorted d/big
head -n 3 d/big
tail -n 2 d/big
tail -c 10 d/big
wc d/big
md5sum d/big
ls d
ls -1R d2 | sort
ls -l d | grep -v '^total' | awk '{print $1,$2,$5,$9}'
mv d/one d/renamed
mv d2/e .
ln d/renamed d/hard
ln -s renamed d/soft
ln -s nowhere d/dangling
readlink d/soft
cat d/soft
stat -c '%h' d/hard
truncate -s 100 d/trunc
truncate -s +50 d/trunc
truncate -s 7 d/renamed
stat -c '%n %s' d/trunc d/renamed
touch -d '2020-01-02 03:04:05.123456789 UTC' d/trunc
stat -c '%y %Y' d/trunc | sed 's/+.*//'
touch d/new
chmod 640 d/new
stat -c %a d/new
chmod -R u+x,g-w d3
rm d/hard
rm -r d3
rmdir d2/e 2> /dev/null || echo gone
rmdir d2 2> /dev/null || echo notempty
rm nonexistent 2> /dev/null || echo enoent
mkdir d 2> /dev/null || echo exists
cat d 2> /dev/null || echo isdir
find . -type f | sort
find . -name 'b*' -size +100k | sort
du -s --apparent-size d/big | cut -f1
tee d/t1 d/t2 < d/renamed > /dev/null
cmp d/t1 d/t2
split -b 300k d/big part.
cat part.* | cmp - d/big
install -m 600 d/big inst
stat -c %a inst
sha256sum inst | cut -c1-16
mkfifo fifo
stat -c %F fifo
cut -c1 d/trunc | wc -c
grep -c 7 d/big
sed -i 's/^1$/first/' d/big
head -n1 d/big
awk 'NR==2' d/big
diff -r d2 d && echo same || echo differ
test -e d/soft && test -L d/dangling && test ! -e d/dangling && test -d d && test -w d/new && echo tests
df d > /dev/null && echo df
realpath --relative-to=. d/soft
seq 5 > s5
comm -12 s5 s5 | wc -l
mktemp -p . tmp.XXXXXX | wc -c
rm tmp.*
mktemp -d dXXXXXX | wc -c
rmdir d??????
tac d/t1
unlink d/t1
sync d/t2
cp -n d/big d/t2
cp -u d/big d/t2
cp -l d/t2 d/t3
cp -s $PWD/d/t2 d/t4 2> /dev/null
ln -sf t2 d/t4
cat d/t4 | head -n1
shred -u d/t3 2> /dev/null
ls d/t3 2> /dev/null || echo shredded
basename $(pwd) | wc -l
