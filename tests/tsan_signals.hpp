// Included before the server that runs under ThreadSanitizer. libtsan makes a thread's signal context at its first blocking call,
// and a signal that arrives while it does is lost (SigCtx in GCC 12's tsan_interceptors_posix.cpp): it shall be there before main.
#pragma once
#include <poll.h>

namespace {
[[gnu::constructor]] void make_signal_context() {
    ::poll(nullptr, 0, 0);
}
}  // namespace
