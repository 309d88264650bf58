# Archives and copies of trees, compared with what they were made from.
set -e
mkdir -p src/a/b
for i in 1 2 3 4 5
do
    seq $i 3000 > src/a/f$i
done
ln -s f1 src/a/link
ln src/a/f2 src/a/b/hard
chmod 750 src/a
touch -d '2021-05-06 07:08:09 UTC' src/a/f3
head -c 1500000 /dev/zero | tr '\0' x > src/a/b/large
find src -exec touch -h -d '2021-05-06 07:08:09 UTC' {} +
tar cf t.tar src
tar tf t.tar | sort
mkdir x
tar xf t.tar -C x
diff -r src x/src && echo tar same
tar czf t.tgz -C src .
mkdir y
( cd y && tar xzf ../t.tgz )
diff -r src y && echo tgz same
tar cf - src | ( mkdir z
cd z
tar xf - )
diff -r src z/src && echo pipe same
stat -c '%n %a %s %Y' x/src/a/f3 z/src/a x/src/a/b/hard
rsync -a src/ r/
diff -r src r && echo rsync same
echo more >> src/a/f1
rm src/a/f2
rsync -a --delete --itemize-changes src/ r/ | cut -c1-3,13- | sort
diff -r src r && echo rsync2 same
rsync -aH --inplace src/ r2/
diff -r src r2 && echo rsync3
rsync -a --checksum src/ r/
find r -type f -printf '%P %y %m %T@\n' | sort > l1
find src -type f -printf '%P %y %m %T@\n' | sort > l2
cmp l1 l2 && echo times
gzip -k src/a/f1
gunzip -c src/a/f1.gz | cmp - src/a/f1 && echo gzip
zcat src/a/f1.gz | tail -n 1
cp -a src c
find c -printf '%P %y %m %T@\n' | sort > l3
find src -printf '%P %y %m %T@\n' | sort > l4
cmp l3 l4 && echo cp-a
rm -rf src x y z r r2 c t.tar t.tgz l1 l2 l3 l4
ls
