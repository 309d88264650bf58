"""bash: redirections, pipes, and what it does with files itself."""

from service import SameAsLocalCase


class Shell(SameAsLocalCase):
    def test_redirections(self):
        self.same("echo a > f; echo b >> f; cat < f; cat missing 2> err; cat err; { echo out; echo err >&2; } > both 2>&1; cat both; echo x &> all; cat all")

    def test_descriptors_that_stay_open(self):
        self.same("exec 3> f; echo one >&3; echo two >&3; exec 3>&-; exec 4<> f; read -r a <&4; echo \"$a\"; echo X >&4; exec 4>&-; cat f")

    def test_here_documents_and_here_strings(self):
        self.same("cat > f <<END\nline $((1 + 1))\nEND\ncat <<< \"$(cat f)\" >> f; cat f; wc -l < f")

    def test_reading_lines(self):
        self.same("seq 5 > f; while read -r n; do echo $((n * n)); done < f > g; cat g; mapfile -t all < g; echo ${#all[@]}; sum=0; for n in $(< g); do sum=$((sum + n)); done; echo $sum")

    def test_noclobber_and_missing_directories(self):
        self.same("echo a > f; set -C; echo b > f; echo c >| f; cat f; echo d > no/f; echo $?")

    def test_globs(self):
        self.same("touch a.txt b.txt .hidden; mkdir d; touch d/c.txt; echo *; echo */*; echo .h*; shopt -s globstar nullglob; echo **/*.txt; echo *.none")

    def test_pipes_and_subshells_on_one_file(self):
        self.same("(for i in 1 2 3; do (echo $i) ; done) > f; cat f | (read -r x; echo got $x; cat) ; (cd /; echo here) >> f; cat f")

    def test_sourced_scripts(self):
        self.same("echo 'greet() { echo hello $1; }' > lib.sh; . ./lib.sh; greet world; echo 'echo $#' > s.sh; bash s.sh a b; bash -n s.sh")

    def test_background_jobs_append_whole_lines(self):
        self.same("for i in 1 2 3 4; do (for n in $(seq 50); do echo $i-$n >> f; done) & done; wait; sort f > g; rm f; uniq g | wc -l; awk -F- 'NF != 2' g")

    def test_command_substitution_leaves_nothing_open(self):
        self.same("for i in $(seq 200); do echo $i > f; x=$(cat f); done; echo $x; ls /proc/self/fd | wc -l | awk '{print ($1 < 8)}'")


class ShellOverTcp(Shell):
    """The same with a key over TCP."""

    TRANSPORT = "tcp"
