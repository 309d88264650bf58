"""HiGHS as the oracle of the linear programs: the same optimum in a thousand random cases of each kind."""

import random
import unittest

import highspy

import isonomia

CASES = 1000
LARGE_CASES = 10


class Oracle:
    """One HiGHS for all cases."""

    def __init__(self):
        self.highs = highspy.Highs()
        self.highs.setOptionValue("output_flag", False)
        self.highs.setOptionValue("threads", 1)

    def maximum(self, costs, lower, upper, rows):
        """``max costs·x`` with bounds, and rows as (lowest, coefficients by variable, highest)."""
        highs = self.highs
        highs.clearModel()
        highs.addVars(len(costs), lower, upper)
        highs.changeColsCost(len(costs), list(range(len(costs))), costs)
        for low, coefficients, high in rows:
            highs.addRow(low, high, len(coefficients), list(coefficients), list(coefficients.values()))
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        highs.run()
        if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return None
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise AssertionError(highs.getModelStatus())
        return highs.getInfo().objective_function_value


class Highs(unittest.TestCase):
    def test_packing_programs(self):
        oracle, chance = Oracle(), random.Random(1)
        infeasible = 0
        for case in range(CASES):
            variables, rows = chance.randint(1, 15), chance.randint(1, 10)
            # Round numbers make ties and degenerate vertices, which random ones never do.
            number = (lambda: chance.uniform(0, 2)) if case % 2 else (lambda: float(chance.randint(0, 3)))
            costs = [number() - (0.5 if chance.random() < 0.2 else 0) for _ in range(variables)]
            matrix = [[number() if chance.random() < 0.5 else 0.0 for _ in costs] for _ in range(rows)]
            limits = [1 + number() * variables / 3 for _ in range(rows)]
            lower = [chance.choice([0.0, 0.0, 0.1, 0.3]) for _ in costs]
            upper = [low + chance.choice([0.0, 0.5, 1.0, 4.0]) for low in lower]
            weights = [chance.choice([1.0, 1.0, 2.0, 0.3]) for _ in costs]
            expected = oracle.maximum(
                costs,
                lower,
                upper,
                [
                    (-highspy.kHighsInf, {at: value for at, value in enumerate(row) if value}, limit)
                    for row, limit in zip(matrix, limits)
                ],
            )
            solve = lambda weights: isonomia.solve_packing(
                costs, matrix, limits, bounds=list(zip(lower, upper)), weights=weights
            )
            if expected is None:
                infeasible += 1
                with self.assertRaises(isonomia.Error, msg=f"case {case}"):
                    solve(None)
                continue
            for fairness in (None, weights):
                found = solve(fairness)
                with self.subTest(case=case, fair=fairness is not None):
                    self.assertAlmostEqual(found["objective"], expected, delta=1e-6 * max(1, abs(expected)))
                    for value, low, high in zip(found["values"], lower, upper):
                        self.assertTrue(low - 1e-6 <= value <= high + 1e-6, (value, low, high))
                    for row, limit in zip(matrix, limits):
                        used = sum(value * coefficient for value, coefficient in zip(found["values"], row))
                        self.assertLessEqual(used, limit + 1e-6)
        self.assertTrue(10 < infeasible < CASES / 2, infeasible)

    def test_gift_programs(self):
        throttled, redeemed = self.compare_gift(CASES, (1, 10), (1, 15))
        self.assertGreater(throttled, CASES / 10)
        self.assertGreater(redeemed, CASES / 10)

    def test_large_gift_programs(self):
        """Those that are started from inside of the optimal face."""
        throttled, _ = self.compare_gift(LARGE_CASES, (50, 120), (450, 700))
        self.assertGreater(throttled, LARGE_CASES / 10)

    def compare_gift(self, cases, target_counts, app_counts):
        """In how many of the cases somebody was throttled, and redeemed coupons."""
        oracle, chance = Oracle(), random.Random(2)
        throttled = redeemed = 0
        for case in range(cases):
            targets = [f"t{at}" for at in range(chance.randint(*target_counts))]
            b_thres = chance.choice([0.0, 0.1, 0.3, 0.8, 1.0])
            apps = [
                {
                    "name": f"a{at:03}",
                    "targets": chance.sample(targets, chance.randint(1, min(5, len(targets)))),
                    "throttle_friendly": chance.random() < 0.7,
                    "weight": chance.choice([1.0, 1.0, 2.0, 0.5]),
                    "owed": chance.choice([0.0, 0.0, 0.05, 0.4]),
                }
                for at in range(chance.randint(*app_counts))
            ]
            found = isonomia.allocate({"b_thres": b_thres, "targets": targets, "app": apps}, "gift")
            expected = self.gift(oracle, b_thres, apps, found["apps"])
            throttled += any(app["coupon_issued"] > 0 for app in found["apps"])
            redeemed += any(app["coupon_redeemed"] > 0 for app in found["apps"])
            with self.subTest(case=case):
                # Coupons are whole: what is redeemed is known to a millionth of a target for each application.
                delta = 1e-4 * max(1, len(apps) / 100)
                self.assertAlmostEqual(found["effective_bandwidth"], expected, delta=delta)
        return throttled, redeemed

    def gift(self, oracle, b_thres, apps, found):
        """The greatest effective bandwidth under GIFT §3.4's constraints, given fair shares and what is redeemed.

        Variables: the share of each application, and the coupons of each that may be throttled.
        """
        count = len(apps)
        width = [float(len(app["targets"])) for app in apps]
        fair = [app["fair_share"] for app in found]
        back = [app["coupon_redeemed"] / wide for app, wide in zip(found, width)]
        friendly = [app["throttle_friendly"] and paid == 0 for app, paid in zip(apps, back)]
        most = [b_thres * share if may else 0.0 for share, may in zip(fair, friendly)]
        lower = [share + paid - less for share, paid, less in zip(fair, back, most)] + [0.0] * count
        upper = [highspy.kHighsInf] * count + most
        rows = []
        for target in {target for app in apps for target in app["targets"]}:
            at = {index: 1.0 for index, app in enumerate(apps) if target in app["targets"]}
            rows.append((-highspy.kHighsInf, at, 1.0 + 1e-9))
        for index in range(count):
            rows.append((fair[index], {index: 1.0, count + index: 1.0}, highspy.kHighsInf))
        worth = {index: width[index] for index in range(count)} | {
            count + index: -width[index] for index in range(count)
        }
        rows.append((sum(wide * share for wide, share in zip(width, fair)) - 1e-9, worth, highspy.kHighsInf))
        return oracle.maximum(width + [0.0] * count, lower, upper, rows)


if __name__ == "__main__":
    unittest.main()
