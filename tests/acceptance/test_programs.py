"""What people do all day on a source tree, through both ways: copying, looking, git, make, sqlite."""

import subprocess
from pathlib import Path

from service import MountedCase, SameAsLocalCase

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "tests/acceptance/programs/project"
# Commits are the same wherever and whenever they are made.
GIT = {
    "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_AUTHOR_DATE": "2001-02-03T04:05:06Z",
    "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e", "GIT_COMMITTER_DATE": "2001-02-03T04:05:06Z",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip
COUNT = "select count(*), sum(n), sum(length(text)) from t;"


class Programs(SameAsLocalCase):
    def setUp(self):
        super().setUp()
        # A source tree with what trees have: hard and symbolic links, modes, times.
        self.source = self.local.parent / f"{self.local.name}-source"
        self.addCleanup(subprocess.run, ["rm", "-rf", self.source])
        subprocess.run(
            ["bash", "-ec", f"umask 022; cp -r {ROOT}/crates/units {self.source}; cp -r {ROOT}/docs {self.source}; cd {self.source};"
             "find . -exec touch -h -d @1000000000 {} +; chmod 640 Cargo.toml; ln Cargo.toml hard; ln -s docs/glossary.md soft;"
             "ln -s nowhere dangling; : > empty; touch -d @1111111111.123456789 hard"],
            check=True, timeout=60,
        )  # fmt: skip

    def test_cp_diff_and_find_on_a_source_tree(self):
        self.same(
            f"cp -a {self.source} tree; cp -a tree copy; diff -r --no-dereference tree copy && echo same; diff -r tree {self.source};"
            "find copy -newermt @1111111110 -printf '%p %T@\\n' | sort; find copy -type f -size +8k -name '*.md' | sort;"
            "find copy -name '*.rs' -print0 | sort -z | xargs -0 grep -c unsafe; find -L tree -type l; find . -samefile tree/hard | sort;"
            "echo more >> copy/docs/tutorial.md; rm copy/soft; chmod 600 copy/empty; diff -rq --no-dereference tree copy;"
            "find copy -depth -name '*.md' -delete; find copy -type d -empty -delete; rm -r tree; ls"
        )

    def test_du_counts_hard_links_once(self):
        # How much room a file takes is the file system's own affair; how long it is is not.
        self.same(f"cp -a {self.source} t; find t -type f -links 1 -exec du -b --apparent-size {{}} + | sort -k 2; du -b --apparent-size t/hard t/Cargo.toml")
        used = int(self.bash("head -c 8000000 /dev/urandom > large; sync large; du -B1 large").stdout.split()[0])
        self.assertGreaterEqual(used, 8_000_000)

    def test_tar_keeps_a_source_tree(self):
        self.same(
            f"cp -a {self.source} t; tar -cf t.tar --sort=name t; tar -tvf t.tar --full-time; mkdir out; tar -xpf t.tar -C out; tar -df t.tar && echo same;"
            "touch -d @1222222222 t/empty; echo x >> t/docs/tutorial.md; tar -uf t.tar t; tar --delete -f t.tar t/soft; tar -tf t.tar | tail -3;"
            "tar -cS t | tar -xO --wildcards '*/lib.rs' | md5sum; rm t.tar"
        )

    def test_rsync_of_a_source_tree(self):
        self.same(
            f"rsync -aHi {self.source}/ t/; rsync -aHi --checksum {self.source}/ t/; rsync -aHi t/ u/; echo x >> t/docs/tutorial.md; rm t/soft; chmod 600 t/empty;"
            "touch -h -d @1222222222 t t/docs/tutorial.md; rsync -aHi --delete --no-whole-file t/ u/; rsync -aHi --inplace --append-verify t/ u/; diff -r --no-dereference t u"
        )

    def test_git_clones_checks_and_collects(self):
        self.same(
            f"""
            cp -r {self.source} one; cd one; git init -q -b main; git add .; git commit -qm first; git mv docs/tutorial.md moved; git commit -qm second
            git checkout -qb side; echo x >> Cargo.toml; git commit -qam third; git checkout -q main; git merge -q --no-edit side; git tag -am v1 v1
            git stash list; echo y >> moved; git stash -q; git stash pop -q; git diff --stat; git checkout -q moved
            cd ..; git clone -q --no-hardlinks one two; git clone -q one three; git clone -q "file://$PWD/one" four
            for r in one two three four; do git -C $r fsck --full --strict; git -C $r gc -q --prune=now; git -C $r fsck --full --strict; done
            git -C two status --porcelain; git -C two log --format='%H %s'; git -C two repack -adfq; git -C two fsck; git -C two pack-refs --all
            git -C three worktree add -q ../tree side; git -C tree log --oneline; git -C three push -q origin side:pushed; git -C one branch
            git -C two pull -q --no-rebase; git -C two archive v1 | tar -t | md5sum; diff -r --no-dereference --exclude=.git one three; git -C one count-objects
            rm -rf one two three four tree; ls
            """,
            trees=False,
            env=GIT,
        )

    def test_make_builds_checks_and_installs_a_project(self):
        self.same(
            f"""
            cp -r {PROJECT} p; cd p; make -s -j4 all check && make -s -j4 -q && echo nothing left; find . -exec touch -d @1000000000 {{}} +; touch calculate.h
            make -q; echo $?; make -j4 | sort; make -s install DESTDIR=$PWD/there; there/bin/calculator; nm libsums.a; nm -D there/lib/libpower.so | grep power
            strip there/bin/calculator; there/bin/calculator; strip -o s there/lib/libpower.so; ar x libsums.a sum.o; cmp sum.o <(ar p libsums.a sum.o) && echo same
            make -s clean; rm -r there s; ls
            """
        )

    def sqlite(self, *statements, pragma="", check=True, name="db"):
        return self.run_here("sqlite3", "-bail", "-cmd", ".timeout 60000", *(["-cmd", pragma] if pragma else []), name, *statements, check=check)

    FILL = """create table t(n integer primary key, text text); create index i on t(text);
        with recursive c(x) as (select 1 union all select x + 1 from c where x < 5000) insert into t select x, hex(x * x) from c;
        delete from t where n % 3 = 0; update t set text = text || text where n % 5 = 0; vacuum;"""

    def test_sqlite_in_every_journal_mode(self):
        for mode in ["delete", "truncate", "persist", "memory", "off"]:
            with self.subTest(mode):
                out = self.sqlite(f"pragma journal_mode={mode}; {self.FILL} begin; delete from t; rollback; pragma integrity_check; {COUNT}"
                                  if mode != "off" else f"pragma journal_mode=off; {self.FILL} pragma integrity_check; {COUNT}", name=mode)
                self.assertEqual(out.stdout.split(), [mode, "ok", "3334|8336667|56626"])

    def test_sqlite_writers_beside_each_other(self):
        self.sqlite("create table t(n integer primary key, text text);")
        self.many_writers()

    def many_writers(self):
        self.bash(
            "for w in 0 1 2 3; do for i in $(seq 15); do sqlite3 -bail -cmd '.timeout 60000' db \"insert into t select $((w * 15)) + $i, 'x';\" || exit 1; done & done;"
            "for job in $(jobs -p); do wait $job || exit 1; done"
        )
        self.assertEqual(self.sqlite(f"pragma integrity_check; {COUNT}").stdout.split(), ["ok", "60|1830|60"])

    def test_sqlite_with_a_log_and_one_user(self):
        out = self.sqlite(f"pragma journal_mode=wal; {self.FILL} pragma integrity_check; {COUNT}", pragma="pragma locking_mode=exclusive;")
        self.assertEqual(out.stdout.split(), ["exclusive", "wal", "ok", "3334|8336667|56626"])

    def test_sqlite_with_a_log(self):
        self.assertEqual(self.sqlite("pragma journal_mode=wal; create table t(n integer primary key, text text);").stdout, "wal\n")
        self.many_writers()
        self.assertEqual(self.sqlite("pragma wal_checkpoint(truncate); pragma journal_mode;").stdout, "0|0|0\nwal\n")


class ProgramsMounted(MountedCase, Programs):
    """The same through a mount."""
