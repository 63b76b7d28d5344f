# Builds the server, its tests and its tools. `make help` lists the targets.
#
# One variable per decision, each to be set on the command line:
#   CXX     compiler; by default the first of g++ >= 10 and clang++ >= 12 that is here (C++20)
#   MARCH   instruction set the code is compiled for (-march=); --version prints it. The SIMD kernels of the parser are chosen at
#           start-up whatever this says; it only decides about the rest of the code
#   WERROR  -Werror in continuous integration, empty otherwise: a new compiler's new warning must not stop a user's build
#   VARIANT what the test binaries are built for: plain, asan (address and undefined behaviour) or tsan (threads)
# Everything but ./server is written below build/, one directory per compiler and variant.

MARCH   ?= native
WERROR  ?=
VARIANT ?= plain
PREFIX  ?= /usr/local
DESTDIR ?=

# ---- compiler ----------------------------------------------------------------------------------------------------------------

ifeq ($(origin CXX),default)
compilers := g++:10 g++-14:10 g++-13:10 g++-12:10 g++-11:10 g++-10:10 \
             clang++:12 clang++-18:12 clang++-17:12 clang++-16:12 clang++-15:12 clang++-14:12 clang++-13:12 clang++-12:12
CXX := $(shell for entry in $(compilers); do name=$${entry%:*}; version=$$($$name -dumpversion 2>/dev/null) || continue; \
         [ "$${version%%.*}" -ge "$$(expr $$entry : '.*:\(.*\)')" ] && { echo $$name; break; }; done)
endif
# Expanded at the head of each recipe that compiles, so that `make help` and `make clean` work without a compiler.
need_compiler = $(if $(CXX),,$(error no C++20 compiler here: g++ 10 or clang++ 12 or newer is needed; tools/setup build installs one))

# ---- flags -------------------------------------------------------------------------------------------------------------------

warnings := -Wall -Wextra -Wpedantic -Wconversion -Wshadow
defines   = -DCEILING_MARCH='"$(or $(MARCH),baseline)"'
# Hardening that costs nothing measurable here: the hot path has no array on the stack to guard and calls libc only for system
# calls. Stack guard, checked libc calls, position-independent code, relocations resolved and made read-only before main.
hardening := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE
hardening_link := -pie -Wl,-z,relro,-z,now,-z,noexecstack
# -pthread also at link time: before glibc 2.34 the thread functions live in a library of their own.
common    = -std=c++20 -pthread $(warnings) $(WERROR) $(defines) $(CPPFLAGS)
march_flag = $(if $(MARCH),-march=$(MARCH))
release   = -O3 -g1 $(march_flag) $(hardening)

# Tests keep every assertion. _GLIBCXX_ASSERTIONS checks each index into a span or string_view.
checks := -D_GLIBCXX_ASSERTIONS -DCEILING_TEST
variant_plain := -O2 -g $(checks)
variant_asan  := -O1 -g $(checks) -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
variant_tsan  := -O1 -g $(checks) -fsanitize=thread
variant_flags  = $(variant_$(VARIANT)) $(march_flag)

# $(call remember,FILE,TEXT): rewrites FILE only when TEXT differs, so what depends on it is built again when a flag changes.
remember = $(shell mkdir -p $(dir $(1)) && echo '$(2)' | cmp -s - $(1) || echo '$(2)' > $(1))
quoted   = $(subst ','"'"',$(1))

.PHONY: microbench fuzz-quick all test test-quick test-asan test-tsan test-binaries headers floor bench simulate fuzz soak tidy format format-check static install clean help
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# ---- the server --------------------------------------------------------------------------------------------------------------

all: server                         ## build ./server (the default)

server: server.cpp build/server.flags Makefile
	$(need_compiler)
	@echo 'server: $(CXX) $(shell $(CXX) -dumpversion), -O3, MARCH=$(MARCH)'
	$(CXX) $(common) $(release) $(CXXFLAGS) -MMD -MP -MF build/server.d -MT server -o $@ server.cpp $(hardening_link) $(LDFLAGS)

build/server.flags: ; @:
$(call remember,build/server.flags,$(call quoted,$(CXX) $(common) $(release) $(CXXFLAGS) $(LDFLAGS)))

# ---- the measuring stick -----------------------------------------------------------------------------------------------------
# The same flags as the server's: what the two cost apart must come from their code.

floor: build/floor                  ## build the null server that figures are measured against
build/floor: tools/floor.cpp build/server.flags Makefile
	$(need_compiler)
	$(CXX) $(common) $(release) $(CXXFLAGS) -MMD -MP -MF $@.d -MT $@ -o $@ $< $(hardening_link) $(LDFLAGS)

# What valgrind counts instructions of: it knows no AVX-512, which `native` may bring.
count_flags = $(common) -O3 -g1 $(if $(filter x86_64,$(shell uname -m)),-march=x86-64-v3) $(CXXFLAGS)
build/count/server: server.cpp
build/count/floor: tools/floor.cpp
build/count/server build/count/floor: build/server.flags Makefile
	$(need_compiler)
	@mkdir -p build/count
	$(CXX) $(count_flags) -MMD -MP -MF $@.d -MT $@ -o $@ $(filter %.cpp,$^) $(LDFLAGS)

bench: server floor build/count/server build/count/floor   ## ours against the floor (and nginx), about a minute; needs tools/setup bench
	tools/bench

# ---- tests -------------------------------------------------------------------------------------------------------------------
# Every tests/*_test.cpp and tests/parse_*.cpp goes into one binary, `unit`. What includes ../server.cpp (with CEILING_NO_MAIN
# defined) can be one translation unit of a program only: each tests/server_*.cpp and tests/*_e2e.cpp is a binary of its own.

built := build/$(notdir $(CXX))
out   := $(built)-$(VARIANT)
own_sources  := $(sort $(wildcard tests/server_*.cpp tests/*_e2e.cpp))
unit_sources := $(sort $(filter-out $(own_sources),$(wildcard tests/*_test.cpp tests/parse_*.cpp)))
# ThreadSanitizer has nothing to see in the parser's tests: pure functions, one thread.
ifeq ($(VARIANT),tsan)
unit_sources := $(filter-out tests/parse_%,$(unit_sources))
endif
unit_binary  := $(if $(unit_sources),$(out)/unit)
test_binaries := $(unit_binary) $(own_sources:tests/%.cpp=$(out)/%)

$(out)/flags: ; @:
$(call remember,$(out)/flags,$(call quoted,$(CXX) $(common) $(variant_flags) $(CXXFLAGS) $(LDFLAGS)))

$(out)/%.o: tests/%.cpp $(out)/flags Makefile
	$(need_compiler)
	$(CXX) $(common) $(variant_flags) $(CXXFLAGS) -MMD -MP -c -o $@ $<

$(out)/unit: $(unit_sources:tests/%.cpp=$(out)/%.o)
$(own_sources:tests/%.cpp=$(out)/%): $(out)/%: $(out)/%.o
$(test_binaries): $(out)/main.o
	$(CXX) -pthread $(variant_flags) $(CXXFLAGS) -o $@ $^ $(LDFLAGS)

# The simulation has a main of its own. Its fibers are strangers to ThreadSanitizer, and it has but one thread.
simulation := $(if $(filter tsan,$(VARIANT)),,$(out)/simulate)
$(out)/simulate: $(out)/simulate.o
	$(CXX) -pthread $(variant_flags) $(CXXFLAGS) -o $@ $^ $(LDFLAGS)

SEEDS ?= 10000
simulate: $(out)/simulate           ## SEEDS=N simulated worlds, from FIRST on; SEED=S replays one (tests/simulate.cpp)
	$< $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) $(if $(FIRST),--first $(FIRST)))

# Fuzzing: libFuzzer comes with clang. New inputs go to build/fuzz/corpus; those worth keeping are copied to tests/fuzz/corpus.
fuzz_targets := $(notdir $(basename $(wildcard tests/fuzz/*.cpp)))
fuzz_flags   := -O2 -g -D_GLIBCXX_ASSERTIONS -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
build/fuzz/%: tests/fuzz/%.cpp Makefile
	mkdir -p $(@D)
	clang++ $(common) $(fuzz_flags) $(march_flag) -MMD -MP -MF $@.d -MT $@ -o $@ $<

SECONDS ?= 60
TARGETS ?= $(fuzz_targets)
fuzz: $(addprefix build/fuzz/,$(TARGETS))   ## SECONDS=N for each of the fuzz targets TARGETS="..." (tests/fuzz); needs tools/setup fuzz
	for target in $(TARGETS); do mkdir -p build/fuzz/corpus/$$target; \
	    dictionary=tests/fuzz/$$target.dict; [ -f $$dictionary ] || dictionary=tests/fuzz/http.dict; \
	    build/fuzz/$$target -max_total_time=$(SECONDS) -timeout=20 -max_len=600 -dict=$$dictionary -artifact_prefix=build/fuzz/ -print_final_stats=1 \
	        build/fuzz/corpus/$$target tests/fuzz/corpus/$$target || exit; done

MINUTES ?= 10
soak: server                        ## MINUTES=N of mixed clients; nothing may grow, nothing may be lost (tests/soak)
	tests/soak --minutes $(MINUTES) --server $(abspath server)

# The server itself in a variant, for the tests that run it as a program.
$(out)/server: server.cpp $(out)/flags Makefile
	$(need_compiler)
	$(CXX) $(common) $(variant_flags) $(CXXFLAGS) $(if $(filter tsan,$(VARIANT)),-include tests/tsan_signals.hpp) \
	    -MMD -MP -MF $@.d -MT $@ -o $@ server.cpp $(LDFLAGS)

# The list is for tests/run: a binary whose source is gone may still lie there.
test-binaries: $(test_binaries) $(simulation) $(out)/server
	@echo $(notdir $(test_binaries) $(simulation)) > $(out)/binaries

# Whoever says only `make test` gets all cores for the three builds; an explicit -j is handed down as it is.
jobs = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
variant_make = +@$(MAKE) --no-print-directory $(jobs) VARIANT=$(1) test-binaries

test: server floor headers  ## every test: plain and under the sanitizers, the command line, conformance; needs tools/setup test
	$(call variant_make,plain)
	$(call variant_make,asan)
	$(call variant_make,tsan)
	tests/run --scripts --also $(built)-asan/server --also $(built)-tsan/server $(built)-plain $(built)-asan $(built)-tsan

test-quick: server          ## the plain test binaries alone
	$(call variant_make,plain)
	tests/run $(built)-plain

test-asan:                       ## test binaries and the server's own suites under AddressSanitizer and UBSan
	$(call variant_make,asan)
	tests/run --also $(built)-asan/server $(built)-asan

test-tsan:                       ## test binaries and the server's own suites under ThreadSanitizer
	$(call variant_make,tsan)
	tests/run --also $(built)-tsan/server $(built)-tsan

# Each header must stand alone, in several translation units of one program, without exceptions or run-time type information.
header_flags = -std=c++20 $(warnings) -Werror -fno-exceptions -fno-rtti -O1
headers: $(addprefix $(out)/alone_,$(wildcard http_parse.hpp reactor.hpp))   ## check that each header compiles alone, twice in one program
$(out)/alone_%: % $(out)/flags
	$(need_compiler)
	echo '#include "$*"' > $@.cpp
	echo '#include "$*"' > $@_main.cpp && echo 'int main() {}' >> $@_main.cpp
	$(CXX) $(header_flags) -I. -o $@ $@.cpp $@_main.cpp -pthread

# ---- the parser beside others ----------------------------------------------------------------------------------------------------
# Rivals are built with the same compiler and flags; their sources lie below build/rivals (microbench/rivals fetches them).

bench_flags   = -O3 -g1 $(march_flag)
bench_objects := $(patsubst microbench/%.cpp,build/microbench/%.o,$(wildcard microbench/*.cpp)) \
                 build/microbench/c/picohttpparser.o build/microbench/c/http_parser.o $(addprefix build/microbench/c/,llhttp.o api.o http.o)
# Twelve repetitions in random order; short ones, as medians of many say more than few long ones on a machine that others use.
MICROBENCH_FLAGS ?= --benchmark_repetitions=12 --benchmark_enable_random_interleaving=true --benchmark_min_time=0.02

microbench: build/microbench/parse_bench    ## our parser beside others: a table, and build/microbench.json; needs tools/setup microbench
	$< $(MICROBENCH_FLAGS) --benchmark_out=build/microbench.json --benchmark_out_format=json > build/microbench.log
	microbench/table.py build/microbench.json

build/rivals/versions:
	microbench/rivals

build/microbench/flags: ; @:
$(call remember,build/microbench/flags,$(call quoted,$(CXX) $(bench_flags) $(CXXFLAGS)))

build/microbench/%.o: microbench/%.cpp build/microbench/flags build/rivals/versions Makefile
	$(need_compiler)
	$(CXX) $(common) $(bench_flags) $(CXXFLAGS) -MMD -MP -c -o $@ $<

# Strict is what the others are; warnings of other people's sources are not ours.
build/microbench/c/%.o: build/rivals/versions build/microbench/flags
	@mkdir -p $(@D)
	$(CXX) -x c -w $(bench_flags) -DHTTP_PARSER_STRICT=1 -c -o $@ build/rivals/*/$*.c

build/microbench/parse_bench: $(bench_objects)
	$(CXX) -pthread $(bench_flags) $(CXXFLAGS) -o $@ $^ -lbenchmark $(LDFLAGS)

# The parser's fuzz targets, two of them beside the same rivals. Their seeds are the conformance cases.
fuzz_parse_flags := -O1 -g -D_GLIBCXX_ASSERTIONS -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
fuzz_rivals      := $(addprefix build/fuzz/c/,picohttpparser.o llhttp.o api.o http.o)
fuzz_parse_targets := parse_kernels parse_rivals parse_body
$(addprefix build/fuzz/,$(fuzz_parse_targets)): build/fuzz/%: tests/fuzz/%.cpp $(fuzz_rivals) Makefile
	clang++ $(common) $(fuzz_parse_flags) -MMD -MP -MF $@.d -MT $@ -o $@ $< $(fuzz_rivals)
	tests/fuzz/seeds.py build/fuzz/corpus

build/fuzz/c/%.o: build/rivals/versions
	@mkdir -p $(@D)
	clang -w -O1 -g -fsanitize=fuzzer-no-link,address -c -o $@ build/rivals/*/$*.c

# A short look by the parser's targets, the same on every run; for continuous integration.
fuzz-quick: $(addprefix build/fuzz/,$(fuzz_parse_targets))   ## a few thousand runs of each of the parser's fuzz targets; needs tools/setup fuzz
	for target in $(fuzz_parse_targets); do \
	    build/fuzz/$$target -runs=3000 -seed=1 -max_len=600 -artifact_prefix=build/fuzz/ build/fuzz/corpus/$$target tests/fuzz/corpus/$$target \
	        2> build/fuzz/$$target.log || { cat build/fuzz/$$target.log; exit 1; }; done

# ---- style -------------------------------------------------------------------------------------------------------------------

sources = $(sort $(wildcard *.cpp *.hpp tests/*.cpp tests/*.hpp tests/simulation/*.hpp tests/fuzz/*.cpp microbench/*.cpp microbench/*.hpp tools/*.cpp))

tidy:                               ## clang-tidy over the server, its headers and the tools (.clang-tidy)
	clang-tidy --quiet $(wildcard *.cpp tools/*.cpp) -- -std=c++20 -I. $(defines) -DCEILING_TEST

format:                             ## clang-format everything in place (.clang-format)
	clang-format -i $(sources)

format-check:                       ## fail where clang-format would change something
	clang-format --dry-run -Werror $(sources)

# ---- housekeeping ------------------------------------------------------------------------------------------------------------

static: build/static/server         ## build/static/server: linked statically, for an image with nothing else in it
# The image may run on another CPU than the one it is built on, hence the compiler's own baseline unless MARCH is given.
build/static/server: MARCH := $(if $(filter-out file,$(origin MARCH)),$(MARCH))
build/static/server: server.cpp http_parse.hpp reactor.hpp Makefile
	$(need_compiler)
	mkdir -p $(@D)
	$(CXX) $(common) $(release) $(CXXFLAGS) -static-pie -o $@ server.cpp -Wl,-z,relro,-z,now,-z,noexecstack $(LDFLAGS)

# The name `server` is too common for a directory of programs.
bindir  := $(PREFIX)/bin
mandir  := $(PREFIX)/share/man/man8
unitdir := $(PREFIX)/lib/systemd/system
completiondir := $(PREFIX)/share/bash-completion/completions
install: server                     ## install as ceiling-server, with manual, completion and units, below DESTDIR and PREFIX
	install -D -m 755 server $(DESTDIR)$(bindir)/ceiling-server
	install -D -m 644 tools/package/ceiling-server.8 $(DESTDIR)$(mandir)/ceiling-server.8
	install -D -m 644 tools/package/ceiling-server.bash $(DESTDIR)$(completiondir)/ceiling-server
	install -d $(DESTDIR)$(unitdir)/ceiling-.service.d
	install -m 644 tools/package/hardening.conf $(DESTDIR)$(unitdir)/ceiling-.service.d/
	install -m 644 tools/package/ceiling-server.socket $(DESTDIR)$(unitdir)/
	for unit in ceiling-server.service ceiling-server@.service; do \
	    sed 's,@bindir@,$(bindir),' tools/package/$$unit > $(DESTDIR)$(unitdir)/$$unit && chmod 644 $(DESTDIR)$(unitdir)/$$unit || exit; done

clean:                              ## remove what was built
	rm -rf build server

help:                               ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r name what; do printf '  make %-14s %s\n' "$$name" "$$what"; done
	@echo '  variables: CXX=$(CXX) MARCH=$(MARCH) WERROR=$(WERROR) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'

-include build/server.d build/floor.d build/count/server.d build/count/floor.d $(wildcard $(out)/*.d build/microbench/*.d build/fuzz/*.d)
