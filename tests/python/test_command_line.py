"""Python and the command line: the same answers, and the same words for what is wrong."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import isonomia

PROGRAM = os.environ["ISONOMIA_PROGRAM"]

SCENARIO = 'duration = "1s"\n[[target]]\nname = "d"\nbandwidth = "1GiB/s"\n[[job]]\nname = "a"\nrequest = "1MiB"\n'
FILES = {
    "case.toml": 'b_thres = 0.3\n[[app]]\nname = "A"\ntargets = ["t1"]\n[[app]]\nname = "B"\ntargets = ["t1", "t2"]\n',
    "unknown.toml": 'targets = ["t1"]\n[[app]]\nname = "A"\ntargets = ["t3"]\n',
    "syntax.toml": "[[app]\n",
    "apps.csv": "id,compute_s,io_s,iterations\n1,8,4,1\n2,4,2,2\n3,2,1,4\n",
    "negative.csv": "id,compute_s,io_s,iterations\n1,8,-4,1\n",
    "jobs.csv": "id,nodes,iterations,compute_s,volume\na,4,1,40,60\nb,2,1,60,30\nc,4,1,30,50\n",
    "log.swf": "1 0 0 100 4 -1 -1 4 100 -1 1 1 1 1 1 -1 -1 -1\n2 5 0 50 2 -1 -1 2 100 -1 1 1 1 1 1 -1 -1 -1\n",
    "sim.toml": SCENARIO,
    "sweep.toml": SCENARIO + '[sweep]\n"job.a.processes" = [1, 2]\n',
    "bad-sim.toml": 'duration = "1s"\n[[target]]\nname = "d"\nbandwidth = "fast"\n',
}
QUESTIONS = [
    (["allocate", "case.toml", "--scheme", "gift"], lambda: isonomia.allocate("case.toml", "gift")),
    (["allocate", "unknown.toml", "--scheme", "gift"], lambda: isonomia.allocate("unknown.toml", "gift")),
    (["allocate", "syntax.toml", "--scheme", "gift"], lambda: isonomia.allocate("syntax.toml", "gift")),
    (
        ["plan", "schedule", "--apps", "apps.csv", "--policy", "stretch"],
        lambda: isonomia.plan_schedule("apps.csv", "stretch"),
    ),
    (
        ["plan", "schedule", "--apps", "negative.csv", "--policy", "fifo"],
        lambda: isonomia.plan_schedule("negative.csv", "fifo"),
    ),
    (
        [
            "plan",
            "pack",
            "--jobs",
            "jobs.csv",
            "--nodes",
            "8",
            "--bandwidth",
            "2",
            "--io-nodes",
            "2",
            "--sensibility",
            "alpha",
        ],
        lambda: isonomia.plan_pack("jobs.csv", nodes=8, bandwidth=2, io_nodes=2, sensibility="alpha"),
    ),
    (
        ["plan", "pack", "--jobs", "jobs.csv", "--nodes", "3", "--bandwidth", "2"],
        lambda: isonomia.plan_pack("jobs.csv", nodes=3, bandwidth=2),
    ),
    (
        ["plan", "pack", "--swf", "log.swf", "--nodes", "8", "--processors-per-node", "2", "--io-fraction", "0.5"],
        lambda: isonomia.plan_pack(swf="log.swf", nodes=8, processors_per_node=2, io_fraction=0.5),
    ),
    (["sim", "sim.toml"], lambda: isonomia.simulate("sim.toml")),
    (["sim", "sweep.toml", "--seed", "5"], lambda: isonomia.simulate("sweep.toml", seed=5)),
    (["sim", "bad-sim.toml"], lambda: isonomia.simulate("bad-sim.toml")),
]


class SameAsCommandLine(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(directory.name)
        for name, text in FILES.items():
            Path(name).write_text(text)

    def test_answers_and_complaints_are_the_same(self):
        complaints = 0
        for words, ask in QUESTIONS:
            with self.subTest(" ".join(words)):
                command = subprocess.run([PROGRAM, *words, "--json"], capture_output=True, text=True, timeout=60)
                try:
                    answer, complaint = ask(), None
                except isonomia.Error as error:
                    answer, complaint = None, str(error)
                    complaints += 1
                if complaint is None:
                    self.assertEqual(command.returncode, 0, command.stderr)
                    self.assertEqual(json.loads(command.stdout), answer)
                else:
                    self.assertEqual(command.returncode, 1)
                    self.assertEqual(command.stderr.splitlines()[-1], f"isonomia: {complaint}")
        self.assertEqual(complaints, 5)


if __name__ == "__main__":
    unittest.main()
