"""Runs a unittest suite and writes what came of each test: unittest_results.py RESULTS ONLY NAME…

NAME is a module, package or test; ONLY is a part of the names of the tests to run. A test with a failed sub-test has failed.
"""
import os
import sys
import unittest


class Result(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = {}

    def note(self, test, what):
        name = test.id()
        if self.seen.get(name) != "fail":
            self.seen[name] = what

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "pass")

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "fail")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "fail")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skip")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, "pass")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "fail")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "fail")


def tests(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from tests(t)
        else:
            yield t


def main(results, only, *names):
    sys.path.insert(0, os.getcwd())
    suite = unittest.TestSuite(t for t in tests(unittest.TestLoader().loadTestsFromNames(names)) if only in t.id())
    done = unittest.TextTestRunner(resultclass=Result, verbosity=2).run(suite)
    with open(results, "w") as out:
        for name, what in sorted(done.seen.items()):
            out.write(f"{what} {name}\n")


main(*sys.argv[1:])
