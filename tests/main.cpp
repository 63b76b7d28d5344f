// The one main of every test binary; doctest finds the test cases that are linked beside it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
