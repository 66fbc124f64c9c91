# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The stages of ./dev, which runs each in a shell of its own: stage_NAME does the work from the root of
# the tree, writes "passed failed" to $COUNTS and ends with a status. $TIER and $FILTER are the person's
# choice, $RESULTS is the folder of logs and counts.

CACHE=${METAFENCE_CACHE:-$HOME/.cache/metafence}
export CCACHE_DIR=$CACHE/ccache CCACHE_MAXSIZE=1G
JOBS=${JOBS:-$(nproc)}
C_FOLDERS=(base agent k8s fence tests)

seconds_since()
{
    local now=${EPOCHREALTIME/./}
    printf '%d.%d' $(((now - $1) / 1000000)) $(((now - $1) / 100000 % 10))
}

# shellcheck disable=SC2034 # dev prints it
declare -A STAGE_SAYS=(
    [setup]="packages, Python venv, Go modules"
    [build]="gcc, warnings are errors; metasim"
    [build_asan]="clang, warnings are errors, address and undefined-behavior sanitizers"
    [lint_self]="the checks of tests/ci can fail"
    [lint]="format, layers, banned functions, purity, documents, clang-tidy, shellcheck, ruff, gofmt"
    [lint_deep]="gcc -fanalyzer, cppcheck"
    [unit]="unit tests, gcc"
    [unit_asan]="unit tests, clang with sanitizers"
    [pg]="agent/pg and sql/ against a real Postgres, sanitizers on"
    [build_fuzz]="clang, sanitizers and coverage: the fuzzers"
    [fuzz]="every parser of outside bytes, with libFuzzer"
    [sim]="simulation: the real cores, virtual time"
    [sim_asan]="simulation under sanitizers"
    [coverage]="what unit tests and simulation execute of agent/core and fence"
    [model]="SPIN models"
    [metasim]="the stand-in for RisingWave's meta: its own tests"
    [build_image]="the container image; the first time its libraries are built"
    [image]="the container image: its archive, and its programs from its own root"
    [e2e]="end to end: real processes, real Postgres"
    [build_cluster]="the programs of a real Kubernetes; the first time takes minutes"
    [charts]="the charts, by real helm"
    [field_notes]="each scenario of docs/field-notes.md was shown by this run"
    [cluster]="end to end: real Kubernetes of three nodes, one to a worker"
    [matrix]="fault matrix on that Kubernetes, with the machine to itself"
)

# --- setup ---

# What image/build needs; image/Containerfile names them too.
IMAGE_PACKAGES=(
    gcc libc6-dev meson ninja-build pkg-config dpkg-dev
    libevent-dev libcurl4-openssl-dev libpq-dev libssl-dev libcjson-dev libyaml-dev
    libprotobuf-c-dev protobuf-c-compiler protobuf-compiler
    ca-certificates
)

APT_PACKAGES=(
    "${IMAGE_PACKAGES[@]}" git
    ccache clang-14 clang-format-14 clang-tidy-14 clang-tools-14 libclang-rt-14-dev cppcheck shellcheck
    libcmocka-dev postgresql-15 pgbouncer spin python3-venv skopeo
    runc containernetworking-plugins nftables iproute2 conntrack openssl
)

missing_packages()
{
    local package
    for package in "${APT_PACKAGES[@]}"; do
        # shellcheck disable=SC2016 # a format of dpkg-query
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) in
        installed) ;;
        *) echo "$package" ;;
        esac
    done
}

install_packages()
{
    local missing as_root=()
    command -v dpkg-query > /dev/null || {
        echo "setup knows Debian 12 only. Install by hand: ${APT_PACKAGES[*]}" >&2
        return 1
    }
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    echo "installing: ${missing//$'\n'/ }"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo > /dev/null || {
            echo "run as root: apt-get install ${missing//$'\n'/ }" >&2
            return 1
        }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -q
    # shellcheck disable=SC2086 # one word a package
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends $missing
}

REQUIREMENTS=(tests/ci/requirements.txt tests/e2e/requirements.txt)

# One venv for each set of pinned requirements and Python.
venv_dir()
{
    local digest
    digest=$({ cat "${REQUIREMENTS[@]}"; python3 -V; } | sha256sum)
    echo "$CACHE/venv-${digest:0:12}"
}

venv_python()
{
    echo "$(venv_dir)/bin/python"
}

make_venv()
{
    local dir file options=()
    dir=$(venv_dir)
    [ -f "$dir/ready" ] && return 0
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "python3 is $(python3 -V): 3.11 or newer is needed" >&2
        return 1
    }
    for file in "${REQUIREMENTS[@]}"; do
        options+=(-r "$file")
    done
    rm -rf "$dir"
    python3 -m venv "$dir"
    "$dir/bin/pip" install -q --disable-pip-version-check "${options[@]}"
    touch "$dir/ready"
}

get_go_modules()
{
    local digest stamp
    command -v go > /dev/null || {
        echo "go is missing: install the version of tests/e2e/metasim/go.mod or newer" >&2
        return 1
    }
    digest=$(sha256sum tests/e2e/metasim/go.sum)
    stamp=$CACHE/go-${digest:0:12}
    [ -f "$stamp" ] && return 0
    (cd tests/e2e/metasim && go mod download)
    touch "$stamp"
}

# prometheus and promtool alone, out of Debian's package: installed, it would start a server.
get_prometheus()
{
    local dir=$CACHE/prometheus work as_root=()
    [ -x "$dir/promtool" ] && return 0
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    work=$(mktemp -d)
    (
        cd "$work" || exit
        apt-get download -q prometheus 2> /dev/null ||
            { "${as_root[@]}" apt-get update -q && apt-get download -q prometheus; }
        dpkg -x prometheus_*.deb .
    )
    mkdir -p "$dir"
    mv "$work"/usr/bin/prometheus "$work"/usr/bin/promtool "$dir"
    rm -rf "$work"
}

stage_setup()
{
    mkdir -p "$CACHE"
    exec 9> "$CACHE/lock"
    flock 9
    install_packages
    make_venv
    get_go_modules
    get_prometheus
}

# --- builds ---

# configure DIR COMPILER [OPTION...]: made anew when the options change, which meson can't do for the compiler.
configure()
{
    local dir=$1 compiler=$2 want
    shift 2
    want="ccache $compiler $*"
    if [ "$(cat "$dir/options" 2>/dev/null)" != "$want" ]; then
        rm -rf "$dir"
        CC="ccache $compiler" meson setup "$dir" -Dwerror=true "$@" > "$RESULTS/meson-setup.log" 2>&1 || {
            tail -n 20 "$RESULTS/meson-setup.log" >&2
            return 1
        }
        echo "$want" > "$dir/options"
    fi
}

build_with()
{
    configure "$@" || return
    ninja -C "$1" -j "$JOBS" --quiet
}

stage_build()
{
    build_with build/gcc gcc
    (cd tests/e2e/metasim && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../../../build/metasim .)
    ln -sfn gcc/agent/metafence build/metafence
    ln -sfn gcc/fence/metafence-run build/metafence-run
}

stage_build_asan()
{
    build_with build/asan clang-14 -Db_sanitize=address,undefined -Db_lundef=false
}

# --- lint ---

# check NAME COMMAND...: one case of a stage; its output shows when it fails.
check()
{
    local name=$1 start=${EPOCHREALTIME/./} log=$RESULTS/check-$1.log
    shift
    if "$@" > "$log" 2>&1; then
        CHECKS_PASSED=$((CHECKS_PASSED + 1))
        printf '  ok      %-14s %s s\n' "$name" "$(seconds_since "$start")"
    else
        CHECKS_FAILED=$((CHECKS_FAILED + 1))
        printf '  FAILED  %-14s %s s\n' "$name" "$(seconds_since "$start")"
        cat "$log"
    fi
    echo "$CHECKS_PASSED $CHECKS_FAILED" > "$COUNTS"
}

c_files()
{
    find "${C_FOLDERS[@]}" -name '*.[ch]' | sort
}

shell_files()
{
    echo dev .ci/run tests/ci/stages.sh
    grep -rlE '^#!.*\b(bash|sh)$' --include='*' tests agent sql fence image 2>/dev/null || true
}

python_files()
{
    find tests agent sql image -name '*.py'
    grep -rlE '^#!.*\bpython3$' tests sql agent image 2>/dev/null || true
}

check_format()
{
    c_files | xargs clang-format-14 --dry-run -Werror
}

check_purity()
{
    tests/ci/check-purity build/gcc/agent/core/libcore.a build/gcc/agent/reconcile/libreconcile.a \
        build/gcc/agent/recovery/librecovery.a build/gcc/fence/libfence-core.a
}

# metafence-run is copied into images that have no library of ours.
check_static()
{
    local found
    found=$(readelf -W -d -l build/gcc/fence/metafence-run | grep -E '\(NEEDED\)|INTERP' || true)
    [ -z "$found" ] || {
        echo "metafence-run must be static: $found"
        return 1
    }
    build/gcc/fence/metafence-run --version
}

# A line "SOURCE FILE..." for each C file: all that the compiler read for it, as the last build noted.
files_read()
{
    ninja -C build/asan -t deps | awk '
        /^[^ ]/ { source = "" }
        /^ / {
            if ($1 !~ /^\// && !sub(/^\.\.\/\.\.\//, "", $1)) $1 = "build/asan/" $1
            if (!source && $1 ~ /\.c$/) source = $1
            if (source) read[source] = read[source] " " $1
        }
        END { for (source in read) print source read[source] }'
}

# tidy_one FILE: a file that was found clean stays so until something that it is compiled from, its flags
# or the rules change.
tidy_one()
{
    local read stamp
    read=$(sed -n "s|^$1 ||p" "$RESULTS/files-read")
    # shellcheck disable=SC2086 # one word a file
    stamp=$CACHE/tidy/$(cat "$1" $read "$RESULTS/tidy-rules" | sha256sum | cut -c1-32)
    [ -f "$stamp" ] && return 0
    # Standard error only counts the warnings of system headers.
    clang-tidy-14 -p build/asan --quiet "$1" 2> /dev/null || return
    touch "$stamp"
}

# The product's sources as clang compiles them, without what protoc-c wrote. One file a run: from the
# second on, version 14 takes every va_list for uninitialized.
check_tidy()
{
    mkdir -p "$CACHE/tidy"
    find "$CACHE/tidy" -mtime +30 -delete
    files_read > "$RESULTS/files-read"
    find meson.build base agent k8s fence -name meson.build -print0 | sort -z |
        { clang-tidy-14 --version; xargs -0 cat .clang-tidy; } > "$RESULTS/tidy-rules"
    export -f tidy_one
    export CACHE
    # shellcheck disable=SC2016 # for the inner shell
    find base agent k8s fence -name '*.c' -print0 | sort -z |
        xargs -0 -n 1 -P "$JOBS" bash -c 'tidy_one "$0"'
}

check_shell()
{
    shell_files | xargs -n 1 | sort -u | xargs shellcheck -x
}

check_python()
{
    python_files | sort -u | xargs "$(venv_dir)/bin/ruff" check --no-cache
}

check_go()
{
    local unformatted
    unformatted=$(gofmt -l tests/e2e/metasim tests/e2e/cluster/build/cmd tests/bench/peer)
    [ -z "$unformatted" ] || {
        echo "not in gofmt's form: $unformatted"
        return 1
    }
    (cd tests/e2e/metasim && go vet ./...)
}

stage_lint_self()
{
    tests/ci/selftest | tee "$RESULTS/selftest.log"
    tests/ci/count text "$RESULTS/selftest.log" > "$COUNTS"
}

stage_lint()
{
    CHECKS_PASSED=0
    CHECKS_FAILED=0
    check format check_format
    check layers tests/ci/check-layers
    check banned tests/ci/check-banned
    check field-notes tests/ci/check-field-notes
    check docs tests/ci/check-docs
    check reference tests/ci/reference --check build/gcc
    check timeline tests/ci/timeline --check build/gcc
    check purity check_purity
    check static check_static
    check shellcheck check_shell
    check ruff check_python
    check go check_go
    check clang-tidy check_tidy
    [ "$CHECKS_FAILED" -eq 0 ]
}

check_analyzer()
{
    # At -O1 and above it misses plain leaks.
    build_with build/analyze gcc -Dbuildtype=debug -Dtests=false -Dc_args=-fanalyzer
}

check_cppcheck()
{
    cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
        --suppress=missingIncludeSystem -D_GNU_SOURCE -I . base agent k8s fence
}

stage_lint_deep()
{
    CHECKS_PASSED=0
    CHECKS_FAILED=0
    check analyzer check_analyzer
    check cppcheck check_cppcheck
    [ "$CHECKS_FAILED" -eq 0 ]
}

# --- tests of the C parts ---

# meson_suite BUILD SUITE: counts cases, not programs.
meson_suite()
{
    local build=$1 suite=$2 status=0 log
    log=$suite-$(basename "$build")
    rm -f "$build/meson-logs/$log.json"
    # An empty pattern would match nothing.
    if [ -n "$FILTER" ]; then
        export METAFENCE_TEST_FILTER="*$FILTER*"
    fi
    UBSAN_OPTIONS=print_stacktrace=1 meson test -C "$build" --no-rebuild --suite "$suite" \
        --logbase "$log" --num-processes "$JOBS" --print-errorlogs || status=$?
    tests/ci/count meson "$build/meson-logs/$log.json" > "$COUNTS"
    return "$status"
}

stage_unit()
{
    meson_suite build/gcc unit
}

stage_unit_asan()
{
    meson_suite build/asan unit
}

stage_pg()
{
    [ "$TIER" != full ] || export METAFENCE_LONG=1
    meson_suite build/asan pg
}

stage_build_fuzz()
{
    build_with build/fuzz clang-14 -Dfuzz=true -Dtests=false -Db_sanitize=address,undefined \
        -Db_lundef=false -Dc_args=-fsanitize=fuzzer-no-link
}

stage_fuzz()
{
    local seconds=10 status=0
    [ "$TIER" = full ] && seconds=60
    tests/fuzz/run build/fuzz "$seconds" "$JOBS" > "$RESULTS/fuzz.log" 2>&1 || status=$?
    cat "$RESULTS/fuzz.log"
    tests/ci/count text "$RESULTS/fuzz.log" > "$COUNTS"
    return "$status"
}

stage_sim()
{
    local schedules=5000
    [ "$TIER" = fast ] && schedules=300
    [ "$TIER" = full ] && schedules=100000
    # All of ten minutes where there is time; else every fifth.
    [ "$TIER" = full ] && export METAFENCE_SIM_MINUTES=10
    METAFENCE_SIM_JOBS=$JOBS METAFENCE_SIM_SCHEDULES=$schedules meson_suite build/gcc sim
}

stage_sim_asan()
{
    METAFENCE_SIM_SCHEDULES=300 meson_suite build/asan sim
}

# In a tree of its own, without optimization: a line is a line then.
stage_coverage()
{
    local status=0 build=build/coverage
    configure "$build" gcc -Dbuildtype=debug -Db_coverage=true
    ninja -C "$build" -j "$JOBS" --quiet tests/sim/simulate
    find "$build" -name '*.gcda' -delete
    # It builds what it needs.
    meson test -C "$build" --suite covered --logbase covered --num-processes "$JOBS" --print-errorlogs \
        > "$RESULTS/covered.log" 2>&1 || {
        cat "$RESULTS/covered.log"
        return 1
    }
    METAFENCE_SIM_SCHEDULES=300 "$build/tests/sim/simulate" > "$RESULTS/covered-sim.log"
    "$(venv_python)" tests/ci/coverage "$build" > "$RESULTS/coverage.log" || status=$?
    cat "$RESULTS/coverage.log"
    tests/ci/count text "$RESULTS/coverage.log" > "$COUNTS"
    return "$status"
}

stage_model()
{
    local options=() status=0
    [ "$TIER" = full ] && options+=(--full)
    tests/model/run "${options[@]}" > "$RESULTS/model.log" 2>&1 || status=$?
    cat "$RESULTS/model.log"
    tests/ci/count text "$RESULTS/model.log" > "$COUNTS"
    return "$status"
}

# --- the container image ---

has_image_test()
{
    [ -z "$FILTER" ] || "$(venv_python)" -m pytest tests/image -q --collect-only -k "$FILTER" > /dev/null 2>&1
}

stage_build_image()
{
    has_image_test || return 0
    METAFENCE_CACHE=$CACHE JOBS=$JOBS image/build build/image
}

# As root, since containers are made by hand.
stage_image()
{
    local options=() status=0 log=$RESULTS/image.xml
    has_image_test || return 0
    [ -n "$FILTER" ] && options+=(-k "$FILTER")
    rm -f "$log"
    in_cluster_tests "$(venv_python)" -m pytest tests/image -q -n "$JOBS" --junitxml="$log" \
        "${options[@]}" || status=$?
    tests/ci/count junit "$log" > "$COUNTS"
    return "$status"
}

# --- metasim and end to end ---

stage_metasim()
{
    local options=() full='' status=0 log=$RESULTS/metasim.json
    [ "$TIER" = full ] && full=1
    [ -n "$FILTER" ] && options+=(-run "$FILTER")
    (cd tests/e2e/metasim && METASIM_LONG=$full go test -json -timeout 30m "${options[@]}" ./...) \
        > "$log" || status=$?
    tests/ci/count go "$log" > "$COUNTS"
    [ "$status" -eq 0 ] || "$(venv_python)" tests/ci/go-failures "$log"
    return "$status"
}

# The scenarios wait nearly all the time: four to a core.
stage_e2e()
{
    local options=() status=0 log=$RESULTS/e2e.xml
    case $TIER in
    fast) options+=(-m smoke) ;;
    full) options+=(--full) ;;
    esac
    [ -n "$FILTER" ] && options+=(-k "$FILTER")
    rm -f "$log"
    METAFENCE_CACHE=$CACHE METAFENCE_BIN_DIR=$PWD/build/gcc METASIM=$PWD/build/metasim \
        "$(venv_python)" -m pytest tests/e2e -q -n $((4 * JOBS)) --junitxml="$log" "${options[@]}" ||
        status=$?
    tests/ci/count junit "$log" > "$COUNTS"
    [ "$status" -ne 5 ] || [ -z "$FILTER" ] || return 0 # 5: no test has that name
    return "$status"
}

# --- the cluster ---

# in_cluster_tests COMMAND...: as root, for namespaces and mounts, with this tree's programs and cache.
in_cluster_tests()
{
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo > /dev/null || {
            echo "this needs root: namespaces, control groups, mounts" >&2
            return 1
        }
        as_root=(sudo)
    fi
    "${as_root[@]}" env METAFENCE_CACHE="$CACHE" METASIM="$PWD/build/metasim" \
        METAFENCE_BIN_DIR="${METAFENCE_BIN_DIR:-$PWD/build/gcc}" PYTHONDONTWRITEBYTECODE=1 PATH="$PATH" "$@"
}

# kubelab COMMAND...: ./dev cluster, with the caller's terminal.
kubelab()
{
    in_cluster_tests ${METAFENCE_CLUSTER:+METAFENCE_CLUSTER="$METAFENCE_CLUSTER"} \
        PYTHONPATH="$PWD/tests/e2e:$PWD/tests/e2e/cluster" "$(venv_python)" -m kubelab "$@"
}

# Is there a scenario on the cluster of that name? If not, nothing has to be built for it.
# has_cluster_test [MARKERS]
has_cluster_test()
{
    local options=()
    [ "$TIER" = full ] && options+=(--full)
    [ -z "$FILTER" ] || "$(venv_python)" -m pytest tests/e2e/cluster -q --collect-only \
        -k "$FILTER" -m "${1:-}" "${options[@]}" > /dev/null 2>&1
}

stage_build_cluster()
{
    [ "$TIER" = charts ] || has_cluster_test || return 0
    METAFENCE_CACHE=$CACHE tests/e2e/cluster/build/build
}

stage_charts()
{
    local options=() status=0 log=$RESULTS/charts.xml
    [ -n "$FILTER" ] && options+=(-k "$FILTER")
    rm -f "$log"
    METAFENCE_CACHE=$CACHE METAFENCE_BIN_DIR=$PWD/build/gcc \
        "$(venv_python)" -m pytest tests/charts -q -n "$JOBS" --junitxml="$log" "${options[@]}" || status=$?
    tests/ci/count junit "$log" > "$COUNTS"
    [ "$status" -ne 5 ] || [ -z "$FILTER" ] || return 0 # 5: no test has that name
    return "$status"
}

# A cluster takes a tenth of a core when idle and a gigabyte; starting pods takes all it can get.
# cluster_tests NAME MARKERS WORKERS
cluster_tests()
{
    local options=() status=0 log=$RESULTS/$1.xml
    [ "$TIER" = full ] && options+=(--full)
    [ -n "${RESUME:-}" ] && options+=(--resume)
    [ -n "$FILTER" ] && options+=(-k "$FILTER")
    rm -f "$log"
    if has_cluster_test "$2"; then
        in_cluster_tests "$(venv_python)" -m pytest tests/e2e/cluster -q -n "$3" --junitxml="$log" -m "$2" \
            "${options[@]}" || status=$?
        tests/ci/count junit "$log" > "$COUNTS"
    fi
    return "$status"
}

stage_cluster()
{
    cluster_tests cluster "not matrix" "$((JOBS < 4 ? JOBS : 4))"
}

# Its waves of pods leave nothing of the processor to others, who would miss their times.
stage_matrix()
{
    cluster_tests matrix matrix 1
}

# --- after all others ---

# Only a whole run can show all of it.
stage_field_notes()
{
    local status=0 log=$RESULTS/field-notes.log
    [ -z "$FILTER" ] || return 0
    tests/ci/check-field-notes --ran --since "$BEGAN" > "$log" || status=$?
    grep -v '^ok' "$log" || true
    tests/ci/count text "$log" > "$COUNTS"
    return "$status"
}
