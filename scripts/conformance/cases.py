"""Every case, by name.

A case is a function `case_*` that takes a `Bench` and raises when the broker
is wrong; the comments above it name the statements that it shows. Cases run at
the same time and share nothing but the broker: every name is made by `unique`.
Nothing is shown by waiting and seeing nothing: where a message must not
arrive, a later one that must arrive ends the wait.
"""

import cases_auth
import cases_connect
import cases_delivery
import cases_publish
import cases_subscribe
import cases_will

MODULES = (
    cases_auth,
    cases_connect,
    cases_will,
    cases_publish,
    cases_subscribe,
    cases_delivery,
)

CASES = {
    name.removeprefix("case_"): function
    for module in MODULES
    for name, function in vars(module).items()
    if name.startswith("case_")
}
