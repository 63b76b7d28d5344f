// Ceiling: a hello-world server at the cost of its system calls.
//
// Everything a client can be told is written down before the first one comes. Options and files become a Site: a set of
// whole responses, bytes and all. A request only chooses one of them; the only byte that changes afterwards is in Date.
//
//     options -> Site (precomputed responses) -> one reactor per thread: bytes -> http::scan -> Response -> bytes -> report
//
// Read main first, then the sections in the order of that line. HTTP meets the reactor in one place, HttpProtocol.

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "http_parse.hpp"
#include "reactor.hpp"

namespace ceiling {

inline constexpr const char* version = "1.0";
#ifndef CEILING_MARCH
#define CEILING_MARCH "unknown"
#endif

/// The process cannot go on: one sentence and an exit status (1: the system refused; 2: the command line is wrong).
struct Failure {
    int status;
    std::string text;
};

struct Options;
Options parse_options(int argc, char** argv);
std::string help_text();
std::string version_text();
int serve(const Options& options);
int run(int argc, char** argv);

}  // namespace ceiling

// ---------------------------------------------------------------------------------------------------------------- main

#ifndef CEILING_NO_MAIN
int main(int argc, char** argv) {
    try {
        return ceiling::run(argc, argv);
    } catch (const ceiling::Failure& failure) {
        std::fprintf(stderr, "ceiling: %s\n", failure.text.c_str());
        return failure.status;
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "ceiling: out of memory\n");
        return 1;
    }
}
#endif

// ----------------------------------------------------------------------------------------------------------- small tools

namespace ceiling {

/// printf(3) into a string of at most 1023 bytes; std::format is not in every compiler that C++20 code meets.
std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char* text, ...) {  // NOLINT(cert-dcl50-cpp): the compiler checks the arguments
    va_list arguments;
    va_start(arguments, text);
    std::array<char, 1024> line{};
    std::vsnprintf(line.data(), line.size(), text, arguments);
    va_end(arguments);
    return line.data();
}

/// The system refused `what`: "listen 127.0.0.1:8080: Address already in use".
[[noreturn]] void fail(const std::string& what, int error = errno) {
    throw Failure{1, what + ": " + std::strerror(error)};
}
[[noreturn]] void misuse(const std::string& text) {
    throw Failure{2, text};
}

/// A file descriptor that closes itself.
class Fd {
public:
    Fd() = default;
    explicit Fd(int fd) noexcept : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Fd() {
        if (fd_ >= 0) ::close(fd_);
    }
    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
    [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }

private:
    int fd_ = -1;
};

// ------------------------------------------------------------------------------------------------------------- options

/// The command line, checked. Sizes in bytes, times in milliseconds.
struct Options {
    enum class Source : std::uint8_t { text, file, tree, filled };

    std::vector<std::string> listen;
    unsigned threads = 0;  ///< 0: one per CPU this process may use
    Source source = Source::text;
    std::string body = "hello";    ///< the text itself, or the path of the file or tree
    std::uint64_t body_bytes = 0;  ///< of a filled body
    unsigned status = 200;
    std::vector<std::string> headers;  ///< "Name: value"
    std::string type;                  ///< empty: by the file's name, or text/plain
    std::string server;
    bool date = true;
    std::uint64_t head_bytes_max = 16384;
    std::uint64_t body_bytes_max = 1 << 20;
    std::uint64_t tree_bytes_max = 256 << 20;
    std::uint64_t connections_max = 0;  ///< 0: as many as descriptors allow
    std::uint64_t requests_max = 0;     ///< per connection; 0: no limit
    std::uint32_t head_timeout_ms = 10'000;
    std::uint32_t idle_timeout_ms = 60'000;
    std::uint32_t drain_timeout_ms = 5'000;
    std::uint32_t delay_ms = 0;
    std::uint64_t backlog = 4096;  ///< Linux caps it at net.core.somaxconn (listen(2)), 4096 since 5.4
    bool pin = false;
    bool reuse_port = false;
    bool defer_accept = true;
    bool balance = true;
    std::uint32_t stats_ms = 0;
    std::string metrics;
    bool help = false;
    bool version = false;
};

/// Whole number with an optional suffix k, m or g (powers of 1024).
std::uint64_t parse_count(std::string_view name, std::string_view text, std::uint64_t least, std::uint64_t most) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
    unsigned shift = 0;
    if (suffix == "k" || suffix == "K") shift = 10;
    if (suffix == "m" || suffix == "M") shift = 20;
    if (suffix == "g" || suffix == "G") shift = 30;
    if (shift != 0) suffix = {};
    const bool number = error == std::errc() && end != text.data() && suffix.empty();
    if (!number || value > (most >> shift) || (value << shift) < least) {
        misuse(format("%.*s %.*s: expected a whole number from %" PRIu64 " to %" PRIu64, static_cast<int>(name.size()), name.data(),
                      static_cast<int>(text.size()), text.data(), least, most));
    }
    return value << shift;
}

/// Seconds with at most three decimals, as milliseconds.
std::uint32_t parse_seconds(std::string_view name, std::string_view text) {
    std::uint64_t whole = 0;
    std::uint64_t thousandths = 0;
    const char* const last = text.data() + text.size();
    auto [end, error] = std::from_chars(text.data(), last, whole);
    bool number = error == std::errc() && end != text.data();
    if (number && end != last) {
        const std::string_view decimals(end + 1, static_cast<std::size_t>(last - end - 1));
        number = *end == '.' && !decimals.empty() && decimals.size() <= 3;
        std::uint64_t unit = 100;
        for (const char digit : decimals) {
            number = number && digit >= '0' && digit <= '9';
            thousandths += unit * static_cast<std::uint64_t>(digit - '0');
            unit /= 10;
        }
    }
    if (!number || whole > 86400) {
        misuse(format("%.*s %.*s: expected seconds from 0 to 86400, with at most three decimals", static_cast<int>(name.size()),
                      name.data(), static_cast<int>(text.size()), text.data()));
    }
    return static_cast<std::uint32_t>(whole * 1000 + thousandths);
}

bool is_field_value(std::string_view value) {
    return std::all_of(value.begin(), value.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
    });
}

bool equals_without_case(std::string_view a, std::string_view b) {
    return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

/// A field line of the user's own. Fields that frame the message are the server's: a second one would be a lie to the
/// client. Two that have an option of their own take its place.
void add_header(Options& options, std::string_view name, std::string_view text) {
    const std::size_t colon = text.find(':');
    const std::string_view field = text.substr(0, colon);
    const auto is_tchar = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c != '\0' && std::strchr("!#$%&'*+-.^_`|~", c) != nullptr);
    };
    if (colon == std::string_view::npos || field.empty() || !std::all_of(field.begin(), field.end(), is_tchar)) {
        misuse(std::string(name) + " '" + std::string(text) + "': expected 'Name: value'");
    }
    std::string_view value = text.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    if (!is_field_value(value)) misuse(std::string(name) + " " + std::string(field) + ": the value holds a control character");
    for (const char* ours : {"date", "content-length", "transfer-encoding", "connection"}) {
        if (equals_without_case(field, ours))
            misuse(std::string(name) + " " + std::string(field) + ": this field is the server's own");
    }
    if (equals_without_case(field, "content-type")) {
        options.type = value;
    } else if (equals_without_case(field, "server")) {
        options.server = value;
    } else {
        options.headers.push_back(std::string(field) + ": " + std::string(value));
    }
}

std::string parse_value(std::string_view name, std::string_view text) {
    if (text.empty() || !is_field_value(text)) misuse(std::string(name) + ": expected a value without control characters");
    return std::string(text);
}

void set_source(Options& o, Options::Source source, std::string_view text) {
    o.source = source;
    o.body = text;
}

/// One option: its name, what it takes (null: nothing), a line of help, and what it does.
struct OptionRow {
    const char* name;
    const char* takes;
    const char* help;
    void (*apply)(Options&, std::string_view name, std::string_view text);
};

// One option a row, as a table.
// clang-format off
#define CEILING_TAKE [](Options & o, [[maybe_unused]] std::string_view name, [[maybe_unused]] std::string_view text)
constexpr OptionRow option_rows[] = {
    {"--listen", "ADDR:PORT", "where to listen, may repeat: IPv4, [IPv6] or unix:PATH; port 0 picks one (127.0.0.1:8080)",
     CEILING_TAKE { o.listen.emplace_back(text); }},
    {"--threads", "N", "reactors, one thread each (one per CPU this process may use)",
     CEILING_TAKE { o.threads = static_cast<unsigned>(parse_count(name, text, 1, 1024)); }},
    {"--body", "TEXT", "what to answer (hello)", CEILING_TAKE { set_source(o, Options::Source::text, text); }},
    {"--file", "PATH", "answer with this file; SIGHUP reads it again",
     CEILING_TAKE { set_source(o, Options::Source::file, text); }},
    {"--root", "DIR", "answer with the files of this tree by path; SIGHUP reads it again",
     CEILING_TAKE { set_source(o, Options::Source::tree, text); }},
    {"--body-size", "BYTES", "answer with so many bytes of filling",
     CEILING_TAKE {
         set_source(o, Options::Source::filled, "");
         o.body_bytes = parse_count(name, text, 0, std::uint64_t{1} << 40);
     }},
    {"--status", "CODE", "answer with this status, 200 to 599 (200)",
     CEILING_TAKE { o.status = static_cast<unsigned>(parse_count(name, text, 200, 599)); }},
    {"--delay", "MS", "hold every answer for so many milliseconds (0)",
     CEILING_TAKE { o.delay_ms = static_cast<std::uint32_t>(parse_count(name, text, 0, 86'400'000)); }},
    {"--header", "'Name: value'", "add a field to every answer that carries the body, may repeat",
     CEILING_TAKE { add_header(o, name, text); }},
    {"--type", "MIME", "Content-Type (by the file's name, else text/plain)", CEILING_TAKE { o.type = parse_value(name, text); }},
    {"--server", "NAME", "add a Server field (none)", CEILING_TAKE { o.server = parse_value(name, text); }},
    {"--no-date", nullptr, "leave out Date, against RFC 9110 6.6.1", CEILING_TAKE { o.date = false; }},
    {"--max-head", "BYTES", "longest request head: 414 or 431 beyond (16384)",
     CEILING_TAKE { o.head_bytes_max = parse_count(name, text, 64, 16 << 20); }},
    {"--max-body", "BYTES", "longest request content: 413 beyond (1 MiB)",
     CEILING_TAKE { o.body_bytes_max = parse_count(name, text, 0, http::body_bytes_limit); }},
    {"--max-tree", "BYTES", "most bytes --root and --file may hold in memory (256 MiB)",
     CEILING_TAKE { o.tree_bytes_max = parse_count(name, text, 1, std::uint64_t{1} << 40); }},
    {"--max-connections", "N", "connections at a time, more wait in the accept queue (as many as RLIMIT_NOFILE allows)",
     CEILING_TAKE { o.connections_max = parse_count(name, text, 1, 1 << 24); }},
    {"--max-requests", "N", "requests on one connection, 0 for no limit (0)",
     CEILING_TAKE { o.requests_max = parse_count(name, text, 0, (1U << 29) - 1); }},
    {"--head-timeout", "S", "time for a request head, from its first byte; 0 for no limit (10)",
     CEILING_TAKE { o.head_timeout_ms = parse_seconds(name, text); }},
    {"--idle-timeout", "S", "time between requests, between pieces of content, and for a reader that does not read (60)",
     CEILING_TAKE { o.idle_timeout_ms = parse_seconds(name, text); }},
    {"--drain-timeout", "S", "time for answers in flight after SIGTERM (5)",
     CEILING_TAKE { o.drain_timeout_ms = parse_seconds(name, text); }},
    {"--backlog", "N", "length of the accept queue, at most net.core.somaxconn (4096)",
     CEILING_TAKE { o.backlog = parse_count(name, text, 1, 1 << 20); }},
    {"--pin", nullptr, "bind each thread to one CPU", CEILING_TAKE { o.pin = true; }},
    {"--reuse-port", nullptr, "share the port with another instance that says so too", CEILING_TAKE { o.reuse_port = true; }},
    {"--no-defer-accept", nullptr, "accept before the request is here (see tcp(7), TCP_DEFER_ACCEPT)",
     CEILING_TAKE { o.defer_accept = false; }},
    {"--no-balance", nullptr, "leave connections with the thread that the kernel's hash chose", CEILING_TAKE { o.balance = false; }},
    {"--stats", "SECONDS", "print a line of figures every so many seconds",
     CEILING_TAKE {
         o.stats_ms = parse_seconds(name, text);
         if (o.stats_ms < 100) misuse("--stats: expected at least 0.1 seconds");
     }},
    {"--metrics", "ADDR:PORT", "serve the counters to Prometheus on a listener of their own", CEILING_TAKE { o.metrics = text; }},
    {"--help", nullptr, "print this and exit", CEILING_TAKE { o.help = true; }},
    {"--version", nullptr, "print version, compiler and kernels and exit", CEILING_TAKE { o.version = true; }},
};
#undef CEILING_TAKE
// clang-format on

/// Reads the command line; both `--name value` and `--name=value`. Throws Failure with status 2.
Options parse_options(int argc, char** argv) {
    Options options;
    const char* source = nullptr;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const std::size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const auto* row =
            std::find_if(std::begin(option_rows), std::end(option_rows), [&](const OptionRow& r) { return name == r.name; });
        if (row == std::end(option_rows)) misuse("unknown option " + std::string(word) + " (--help lists them)");
        std::string_view text;
        if (row->takes == nullptr) {
            if (equals != std::string_view::npos) misuse(std::string(name) + " takes no value");
        } else if (equals != std::string_view::npos) {
            text = word.substr(equals + 1);
        } else if (i + 1 < argc) {
            text = argv[++i];
        } else {
            misuse(std::string(name) + ": expected " + row->takes);
        }
        row->apply(options, name, text);
        const bool names_source = name == "--body" || name == "--file" || name == "--root" || name == "--body-size";
        if (names_source && source != nullptr && source != row->name) {
            misuse(std::string(source) + " and " + row->name + " exclude each other");
        }
        if (names_source) source = row->name;
    }
    if (options.source == Options::Source::tree && options.status != 200) misuse("--status and --root exclude each other");
    return options;
}

std::string help_text() {
    std::string text = "usage: server [OPTION]...\nAnswers every HTTP/1.x request with bytes that were ready before it came.\n\n";
    for (const OptionRow& row : option_rows) {
        std::string left = std::string("  ") + row.name + (row.takes != nullptr ? std::string(" ") + row.takes : "");
        left.resize(std::max<std::size_t>(left.size() + 1, 26), ' ');
        text += left + row.help + "\n";
    }
    text +=
        "\nSizes take a suffix k, m or g. SIGTERM and SIGINT drain and exit, a second one exits at once; SIGHUP reads --file\n"
        "and --root again; SIGUSR1 prints the counters.\n";
    return text;
}

std::string version_text() {
    std::string kernels;
    for (const http::Kernel& kernel : http::kernels()) {
        if (kernel.supported()) kernels += std::string(kernels.empty() ? "" : ", ") + std::string(kernel.name);
    }
    return format("ceiling %s\ncompiler: %s %s, -march=%s\nparser kernel: %s (this CPU can run: %s)\n", version,
#ifdef __clang__
                  "clang",
#else
                  "gcc",
#endif
                  __VERSION__, CEILING_MARCH, std::string(http::kernel().name).c_str(), kernels.c_str());
}

// ---------------------------------------------------------------------------------------------- site: what can be said

/// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 5.6.7).
inline constexpr std::size_t date_bytes = 29;
void write_date(char* to, std::int64_t seconds) {
    static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const std::time_t when = seconds;
    std::tm t{};
    ::gmtime_r(&when, &t);
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT", days[t.tm_wday], t.tm_mday, months[t.tm_mon],
                  t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    std::memcpy(to, text.data(), date_bytes);
}
std::string date_text(std::int64_t seconds) {
    std::string text(date_bytes, ' ');
    write_date(text.data(), seconds);
    return text;
}

/// Bytes this machine could still give out (proc(5), MemAvailable).
std::uint64_t memory_available() {
    std::uint64_t kib = 0;
    if (std::FILE* file = std::fopen("/proc/meminfo", "re")) {
        std::array<char, 256> line{};
        while (std::fgets(line.data(), static_cast<int>(line.size()), file) != nullptr) {
            if (std::sscanf(line.data(), "MemAvailable: %" SCNu64, &kib) == 1) break;
        }
        std::fclose(file);
    }
    return kib != 0 ? kib * 1024 : UINT64_MAX;
}

class Site;

/// One whole response. Immutable and shared by all threads; Date is filled in by each thread as it sends.
struct Response {
    Site* site = nullptr;
    std::string_view head;      ///< status line to empty line, with blanks where Date will stand
    std::uint32_t date_at = 0;  ///< offset of Date's value in `head`; 0: no Date
    std::uint16_t status = 0;
    std::uint32_t number = 0;       ///< its place in the site, so that a connection can remember it in 24 bits
    std::uint16_t hot = 0;          ///< each thread keeps copies of it ready, back to back: which of them, from 1; 0: it does not
    std::string_view content;       ///< in memory, or, if empty,
    std::uint64_t file_offset = 0;  ///< ... so many bytes of the site's file from here
    std::uint64_t file_bytes = 0;
    const Response* closing = nullptr;  ///< the same answer with `Connection: close`

    [[nodiscard]] std::uint64_t size() const noexcept { return head.size() + content.size() + file_bytes; }
};

/// What the server says about the connection. An HTTP/1.1 client takes persistence for granted, an HTTP/1.0 client must
/// be told (RFC 9112 9.3, C.2.2), and the end is always announced (9.6).
enum class Persistence : std::uint8_t { silent, keep_alive, close };
inline constexpr std::size_t persistences = 3;

/// The same answer in all its forms: index with [persistence][is HEAD].
using Forms = std::array<std::array<const Response*, 2>, persistences>;

/// A file of the tree, or a directory.
struct Resource {
    Forms found{};
    Forms not_modified{};
    std::string etag;
    std::int64_t modified = 0;  ///< seconds since the epoch
    bool redirect = false;      ///< `found` is a redirect: preconditions do not apply (RFC 9110 13.2.1)
};

/// A file larger than this is sent from a file in memory by sendfile(2); below, one send of contiguous bytes is cheaper
/// than a head and a sendfile (tools/bench measures both: two calls against one copy of 64 KiB).
inline constexpr std::size_t content_bytes_contiguous = 65536;
/// Responses of one site: a connection remembers one in 24 bits. 1.8 million files, each in nine forms.
inline constexpr std::size_t responses_max = std::size_t{1} << 24;
/// No client takes a longer response head; ours grows only with --header.
inline constexpr std::size_t head_bytes_contiguous = 65536;

/// Responses of one state of the options and files. Replaced as a whole by a reload; the old one lives until the last
/// connection in the middle of one of its responses is done.
class Site {
public:
    /// Reads what the options name. Throws Failure; nothing is left half done.
    static Site* load(const Options& options);

    void retain() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    // The fixed answers of any site.
    Forms ok{};       ///< the body; unused by a tree
    Forms allowed{};  ///< 204 with Allow, for OPTIONS
    Forms not_found{}, method_not_allowed{}, request_timeout{}, expectation_failed{}, not_implemented{}, unavailable{};
    std::array<std::array<const Response*, 2>, 64> rejected{};  ///< by http::Status, [is HEAD]; all close
    const Response* go_ahead = nullptr;                         ///< 100 Continue
    bool tree = false;
    std::map<std::string, Resource, std::less<>> resources;  ///< by decoded path; a directory under "/dir" and "/dir/"
    std::vector<const Response*> hot;                        ///< Response::hot - 1
    std::uint64_t bytes = 0;                                 ///< of content
    [[nodiscard]] int file() const noexcept { return file_.get(); }

    [[nodiscard]] const Response* at(std::uint32_t number) const { return &responses_[number]; }
    [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(responses_.size()); }

private:
    struct Content {
        std::string_view bytes;
        std::uint64_t file_offset = 0, file_bytes = 0;
        [[nodiscard]] std::uint64_t size() const noexcept { return bytes.size() + file_bytes; }
    };

    explicit Site(const Options& options) : options_(options), budget_(std::min(options.tree_bytes_max, memory_available())) {}
    void write_fixed();
    void write_rejections();
    void write_body(const std::string& usual_type, const Content& content);
    void load_text();
    void load_file();
    void load_filled();
    void load_tree();
    bool walk(const std::string& root, const std::string& directory, const std::string& path, std::set<std::string>& above);
    void add_file(const std::string& file, const std::string& path, const struct stat& status);
    void add_redirect(const std::string& path);
    Content keep(std::string content);
    void append_to_file(std::string_view content);
    Forms write(unsigned status, const std::string& fields, const Content& content, bool has_length = true);
    Forms write_note(unsigned status, const std::string& fields, std::string note);
    const Response* add(unsigned status, std::string_view persistence, const std::string& fields, const Content& content,
                        bool has_length, bool is_head);
    const Response* enter(Response response);
    void make_hot(const Forms& forms);

    const Options options_;
    const std::uint64_t budget_;  ///< bytes of content that may be read from files
    std::deque<std::string> texts_;
    std::deque<Response> responses_;
    Fd file_;
    std::uint64_t file_bytes_ = 0;
    std::atomic<std::uint64_t> users_{1};
};

const char* reason_phrase(unsigned status) {
    switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 203: return "Non-Authoritative Information";
    case 204: return "No Content";
    case 205: return "Reset Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 417: return "Expectation Failed";
    case 418: return "I'm a teapot";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 425: return "Too Early";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "";  // optional, the space before it is not (RFC 9112 4)
    }
}

Site* Site::load(const Options& options) {
    std::unique_ptr<Site> site(new Site(options));
    site->write_fixed();
    site->write_rejections();
    switch (options.source) {
    case Options::Source::text: site->load_text(); break;
    case Options::Source::file: site->load_file(); break;
    case Options::Source::tree: site->load_tree(); break;
    case Options::Source::filled: site->load_filled(); break;
    }
    return site.release();
}

void Site::write_fixed() {
    tree = options_.source == Options::Source::tree;
    const std::string allow = tree ? "Allow: GET, HEAD, OPTIONS\r\n" : "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n";
    allowed = write(204, allow, {}, false);  // no Content-Length in a 204 (RFC 9110 8.6)
    method_not_allowed = write_note(405, allow, "this resource does not take that method");
    not_found = write_note(404, "", "nothing of that name is here");
    request_timeout = write_note(408, "", "the request took too long");
    expectation_failed = write_note(417, "", "only 100-continue can be expected");
    not_implemented = write_note(501, "", "unknown method");
    unavailable = write_note(503, "", "the files changed while the request arrived");
    texts_.emplace_back("HTTP/1.1 100 Continue\r\n\r\n");
    Response interim;
    interim.head = texts_.back();
    interim.status = 100;
    go_ahead = enter(interim);
}

void Site::write_rejections() {
    for (unsigned i = 0; i < rejected.size(); ++i) {
        const auto status = static_cast<http::Status>(i);
        const int code = http::status_code(status);
        if (code == 0) continue;
        const Forms forms = write_note(static_cast<unsigned>(code), "", std::string(http::reason(status)));
        rejected[i] = forms[static_cast<std::size_t>(Persistence::close)];
    }
}

/// A response with a sentence for its content, so that whoever debugs a client reads the cause.
Forms Site::write_note(unsigned status, const std::string& fields, std::string note) {
    note = format("%u %s: ", status, reason_phrase(status)) + note + "\n";
    return write(status, fields + "Content-Type: text/plain\r\n", keep(std::move(note)));
}

Forms Site::write(unsigned status, const std::string& fields, const Content& content, bool has_length) {
    static constexpr std::string_view lines[persistences] = {"", "Connection: keep-alive\r\n", "Connection: close\r\n"};
    Forms forms{};
    for (std::size_t p = 0; p < persistences; ++p) {
        for (std::size_t is_head = 0; is_head < 2; ++is_head) {
            forms[p][is_head] = add(status, lines[p], fields, content, has_length, is_head != 0);
        }
    }
    const auto& closing = forms[static_cast<std::size_t>(Persistence::close)];
    for (const auto& form : forms) {
        for (std::size_t is_head = 0; is_head < 2; ++is_head) responses_[form[is_head]->number].closing = closing[is_head];
    }
    return forms;
}

const Response* Site::add(unsigned status, std::string_view persistence, const std::string& fields, const Content& content,
                          bool has_length, bool is_head) {
    std::string head = format("HTTP/1.1 %u %s\r\n", status, reason_phrase(status));
    Response response;
    if (options_.date) {
        head += "Date: ";
        response.date_at = static_cast<std::uint32_t>(head.size());
        head.append(date_bytes, ' ');
        head += "\r\n";
    }
    if (!options_.server.empty()) head += "Server: " + options_.server + "\r\n";
    head += persistence;
    head += fields;
    if (has_length) head += format("Content-Length: %" PRIu64 "\r\n", content.size());
    head += "\r\n";
    if (head.size() > head_bytes_contiguous) throw Failure{1, format("a response head of %zu bytes is too long", head.size())};
    texts_.push_back(std::move(head));
    response.head = texts_.back();
    response.status = static_cast<std::uint16_t>(status);
    if (!is_head) {
        response.content = content.bytes;
        response.file_offset = content.file_offset;
        response.file_bytes = content.file_bytes;
    }
    return enter(response);
}

const Response* Site::enter(Response response) {
    if (responses_.size() >= responses_max) throw Failure{1, options_.body + ": too many files"};
    response.site = this;
    response.number = static_cast<std::uint32_t>(responses_.size());
    return &responses_.emplace_back(response);
}

Site::Content Site::keep(std::string content) {
    Content kept;
    if (content.size() <= content_bytes_contiguous) {
        kept.bytes = texts_.emplace_back(std::move(content));
        return kept;
    }
    kept.file_offset = file_bytes_;
    kept.file_bytes = content.size();
    append_to_file(content);
    return kept;
}

/// Large content lives in one anonymous file (memfd_create(2)): sendfile(2) takes its pages without a copy, and nobody
/// else can shorten it under us.
void Site::append_to_file(std::string_view content) {
    if (!file_) file_ = Fd(::memfd_create("ceiling", MFD_CLOEXEC));
    if (!file_) fail("memfd_create");
    while (!content.empty()) {
        const ssize_t written = ::write(file_.get(), content.data(), content.size());
        if (written < 0) {
            if (errno == EINTR) continue;
            fail("memory for large content");
        }
        content.remove_prefix(static_cast<std::size_t>(written));
        file_bytes_ += static_cast<std::uint64_t>(written);
    }
}

std::string extra_fields(const Options& options) {
    std::string fields;
    for (const std::string& header : options.headers) fields += header + "\r\n";
    return fields;
}

/// Statuses that never have content (RFC 9110 15.3.5, 15.3.6, 15.4.5).
bool forbids_content(unsigned status) {
    return status == 204 || status == 205 || status == 304;
}

void Site::make_hot(const Forms& forms) {
    for (const auto& form : forms) {
        if (form[0]->size() > content_bytes_contiguous) continue;
        hot.push_back(form[0]);
        responses_[form[0]->number].hot = static_cast<std::uint16_t>(hot.size());
    }
}

void Site::load_text() {
    bytes = options_.body.size();
    write_body("text/plain", keep(options_.body));
}

/// The one answer of a site without a tree.
void Site::write_body(const std::string& usual_type, const Content& content) {
    const std::string type = options_.type.empty() ? usual_type : options_.type;
    const bool bare = forbids_content(options_.status);
    const std::string fields = (bare ? "" : "Content-Type: " + type + "\r\n") + extra_fields(options_);
    ok = write(options_.status, fields, bare ? Content{} : content, !bare || options_.status == 205);
    make_hot(ok);
}

void Site::load_filled() {
    if (options_.body_bytes > memory_available()) {
        throw Failure{1, format("--body-size %" PRIu64 ": larger than the memory that is left (%" PRIu64 " bytes)",
                                options_.body_bytes, memory_available())};
    }
    Content content;
    bytes = options_.body_bytes;
    if (bytes <= content_bytes_contiguous) {
        content = keep(std::string(bytes, 'x'));
    } else {
        const std::string block(1 << 20, 'x');
        content.file_offset = file_bytes_;
        content.file_bytes = bytes;
        for (std::uint64_t left = bytes; left != 0;) {
            const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(left, block.size()));
            append_to_file({block.data(), part});
            left -= part;
        }
    }
    write_body("text/plain", content);
}

/// A whole regular file or pipe, at most `most` bytes.
std::string read_file(const std::string& path, std::uint64_t most, int flags = 0) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) fail(path);
    if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) throw Failure{1, path + ": not a regular file"};
    if (S_ISREG(status.st_mode) && static_cast<std::uint64_t>(status.st_size) > most) {
        throw Failure{1, path + format(": %" PRIu64 " bytes are more than --max-tree allows (%" PRIu64 " left)",
                                       static_cast<std::uint64_t>(status.st_size), most)};
    }
    if (S_ISFIFO(status.st_mode)) ::fcntl(file.get(), F_SETFL, O_RDONLY);  // wait for its writer
    std::string content;
    std::array<char, 65536> block;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by read
    for (;;) {
        const ssize_t got = ::read(file.get(), block.data(), block.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(path);
        if (got == 0) return content;
        content.append(block.data(), static_cast<std::size_t>(got));
        if (content.size() > most) throw Failure{1, path + format(": more than --max-tree allows (%" PRIu64 " bytes left)", most)};
    }
}

/// Content-Type by the extension of a file's name: the system's table (/etc/mime.types) over a small one of our own.
class MimeTable {
public:
    MimeTable() {
        for (const auto& [extension, type] : {std::pair{"html", "text/html"},
                                              {"htm", "text/html"},
                                              {"css", "text/css"},
                                              {"js", "text/javascript"},
                                              {"mjs", "text/javascript"},
                                              {"json", "application/json"},
                                              {"txt", "text/plain"},
                                              {"xml", "application/xml"},
                                              {"svg", "image/svg+xml"},
                                              {"png", "image/png"},
                                              {"jpg", "image/jpeg"},
                                              {"jpeg", "image/jpeg"},
                                              {"gif", "image/gif"},
                                              {"webp", "image/webp"},
                                              {"avif", "image/avif"},
                                              {"ico", "image/vnd.microsoft.icon"},
                                              {"pdf", "application/pdf"},
                                              {"wasm", "application/wasm"},
                                              {"woff", "font/woff"},
                                              {"woff2", "font/woff2"},
                                              {"mp4", "video/mp4"},
                                              {"webm", "video/webm"},
                                              {"mp3", "audio/mpeg"},
                                              {"zip", "application/zip"},
                                              {"gz", "application/gzip"}}) {
            types_[extension] = type;
        }
        std::FILE* file = std::fopen("/etc/mime.types", "re");
        if (file == nullptr) return;
        std::array<char, 1024> line{};
        while (std::fgets(line.data(), static_cast<int>(line.size()), file) != nullptr) {
            char* rest = nullptr;
            const char* type = ::strtok_r(line.data(), " \t\n", &rest);
            if (type == nullptr || *type == '#') continue;
            while (const char* extension = ::strtok_r(nullptr, " \t\n", &rest)) types_[extension] = type;
        }
        std::fclose(file);
    }
    [[nodiscard]] std::string of(const std::string& path) const {
        const std::size_t slash = path.rfind('/');
        const std::size_t dot = path.rfind('.');
        if (dot == std::string::npos || (slash != std::string::npos && dot <= slash + 1)) return "application/octet-stream";
        std::string extension = path.substr(dot + 1);
        std::transform(extension.begin(), extension.end(), extension.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        const auto found = types_.find(extension);
        return found != types_.end() ? found->second : "application/octet-stream";
    }

private:
    std::map<std::string, std::string, std::less<>> types_;
};

void Site::load_file() {
    std::string content = read_file(options_.body, budget_);
    bytes = content.size();
    write_body(MimeTable().of(options_.body), keep(std::move(content)));
}

// The tree: every file is found once, here; a request only looks its name up, so it can name nothing that is not here.

void Site::load_tree() {
    std::array<char, PATH_MAX> real{};
    if (::realpath(options_.body.c_str(), real.data()) == nullptr) fail("--root " + options_.body);
    struct stat status {};
    if (::stat(real.data(), &status) != 0) fail("--root " + options_.body);
    if (!S_ISDIR(status.st_mode)) throw Failure{1, "--root " + options_.body + ": not a directory"};
    std::set<std::string> above;
    walk(real.data(), real.data(), "/", above);
}

/// Takes in one directory. `directory` is its real path, `path` what clients call it, with a slash at the end; `above`
/// the real paths on the way here, so that a symbolic link to one of them is not followed in circles: then it is false.
bool Site::walk(const std::string& root, const std::string& directory, const std::string& path, std::set<std::string>& above) {
    if (!above.insert(directory).second) return false;
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), ::closedir);
    if (stream == nullptr) fail(directory);
    std::set<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(stream.get())) names.insert(entry->d_name);
    if (errno != 0) fail(directory);
    for (const std::string& name : names) {
        if (name == "." || name == "..") continue;
        std::array<char, PATH_MAX> real{};
        const std::string seen_as = directory + "/" + name;
        struct stat status {};
        if (::realpath(seen_as.c_str(), real.data()) == nullptr || ::stat(real.data(), &status) != 0) {
            std::fprintf(stderr, "ceiling: %s: skipped: %s\n", seen_as.c_str(), std::strerror(errno));
            continue;
        }
        const std::string file = real.data();
        if (file != root && file.compare(0, root.size() + 1, root == "/" ? root : root + "/") != 0 && root != "/") {
            std::fprintf(stderr, "ceiling: %s: skipped: the link leaves the tree\n", seen_as.c_str());
            continue;
        }
        if (S_ISDIR(status.st_mode)) {
            if (walk(root, file, path + name + "/", above)) {
                add_redirect(path + name);
            } else {
                std::fprintf(stderr, "ceiling: %s: skipped: the link leads to a directory above it\n", seen_as.c_str());
            }
        } else if (S_ISREG(status.st_mode)) {
            add_file(file, path + name, status);
        }
    }
    const auto index = resources.find(path + "index.html");
    if (index != resources.end()) resources.insert_or_assign(path, index->second);
    above.erase(directory);
    return true;
}

std::string content_tag(std::string_view content) {
    std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a, 64 bits: equal on every instance, unlike inode or time
    for (const char byte : content) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
    return format("\"%016" PRIx64 "-%zx\"", hash, content.size());
}

void Site::add_file(const std::string& file, const std::string& path, const struct stat& status) {
    std::string content = read_file(file, budget_ > bytes ? budget_ - bytes : 0, O_NOFOLLOW);
    bytes += content.size();
    Resource resource;
    resource.etag = content_tag(content);
    resource.modified = status.st_mtime;
    const std::string about =
        "ETag: " + resource.etag + "\r\nLast-Modified: " + date_text(resource.modified) + "\r\n" + extra_fields(options_);
    static const MimeTable types;
    const std::string type = options_.type.empty() ? types.of(path) : options_.type;
    resource.not_modified = write(304, about, {}, false);
    resource.found = write(200, "Content-Type: " + type + "\r\n" + about, keep(std::move(content)));
    resources.insert_or_assign(path, std::move(resource));
}

/// Percent-encodes what may not stand in a path (RFC 3986 3.3).
std::string encode_path(std::string_view path) {
    std::string text;
    for (const char c : path) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c != '\0' && std::strchr("/-._~!$&'()*+,;=:@", c) != nullptr);
        text += plain ? std::string(1, c) : format("%%%02X", static_cast<unsigned char>(c));
    }
    return text;
}

void Site::add_redirect(const std::string& path) {
    Resource resource;
    resource.redirect = true;
    resource.found = write(301, "Location: " + encode_path(path) + "/\r\n", {});
    resources.insert_or_assign(path, std::move(resource));
}

// ------------------------------------------------------------------------------------------- from target to resource

/// The path of a request target, decoded, without query and dot segments; nullopt if it cannot name anything.
/// `absolute-form` is taken down to its path (RFC 9112 3.2.2).
std::optional<std::string> path_of(std::string_view target) {
    if (const std::size_t scheme = target.find("://");
        !target.empty() && target.front() != '/' && scheme != std::string_view::npos) {
        target.remove_prefix(scheme + 3);
        const std::size_t slash = target.find_first_of("/?");
        target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
        if (target.front() == '?') target = "/";
    }
    target = target.substr(0, target.find('?'));
    if (target.empty() || target.front() != '/') return std::nullopt;
    std::string decoded;
    decoded.reserve(target.size());
    const auto digit = [](char c) {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    for (std::size_t i = 0; i < target.size(); ++i) {
        if (target[i] != '%') {
            decoded += target[i];
            continue;
        }
        if (i + 2 >= target.size() || digit(target[i + 1]) < 0 || digit(target[i + 2]) < 0) return std::nullopt;
        decoded += static_cast<char>(digit(target[i + 1]) * 16 + digit(target[i + 2]));
        i += 2;
    }
    if (decoded.find('\0') != std::string::npos) return std::nullopt;
    // RFC 3986 5.2.4, after decoding: "/%2e%2e/" is "/../".
    std::string path;
    for (std::size_t at = 0; at < decoded.size();) {
        const std::size_t next = std::min(decoded.find('/', at + 1), decoded.size());
        const std::string_view segment(decoded.data() + at, next - at);  // with its leading slash
        const bool last = next == decoded.size();
        if (segment == "/..") {
            path.resize(path.empty() ? 0 : path.rfind('/'));
            if (last) path += '/';
        } else if (segment == "/.") {
            if (last) path += '/';
        } else {
            path += segment;
        }
        at = next;
    }
    return path.empty() ? "/" : path;
}

/// Does an If-None-Match list name `etag`? Weak comparison (RFC 9110 8.8.3.2, 13.1.2).
bool lists_etag(std::string_view list, std::string_view etag) {
    while (!list.empty()) {
        const std::size_t begin = list.find_first_not_of(" \t,");
        if (begin == std::string_view::npos) return false;
        list.remove_prefix(begin);
        if (list.front() == '*') return true;
        if (list.substr(0, 2) == "W/") list.remove_prefix(2);
        const std::size_t end = list.size() > 1 && list.front() == '"' ? list.find('"', 1) : std::string_view::npos;
        if (end == std::string_view::npos) return false;
        if (list.substr(0, end + 1) == etag) return true;
        list.remove_prefix(end + 1);
    }
    return false;
}

/// An HTTP-date in any of its three forms (RFC 9110 5.6.7).
std::optional<std::int64_t> parse_date(std::string_view text) {
    const std::string copy(text.substr(0, 64));
    for (const char* form : {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"}) {
        std::tm time{};
        const char* end = ::strptime(copy.c_str(), form, &time);
        if (end != nullptr && *end == '\0') return ::timegm(&time);
    }
    return std::nullopt;
}

bool is_unchanged(const Resource& resource, const http::Request& request) {
    if (request.if_none_match.data() != nullptr) return lists_etag(request.if_none_match, resource.etag);
    if (request.if_modified_since.data() == nullptr) return false;
    const std::optional<std::int64_t> since = parse_date(request.if_modified_since);
    return since.has_value() && resource.modified <= *since;
}

// --------------------------------------------------------------------------------------------- where HTTP meets the reactor

/// The site in use and the orders of the outside world; read by every thread once per turn of its loop.
class Current {
public:
    explicit Current(Site* site) noexcept : site_(site) {}
    ~Current() { site_->release(); }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

    [[nodiscard]] std::uint32_t serial() const noexcept { return serial_.load(std::memory_order_relaxed); }
    /// A reference of the caller's own.
    [[nodiscard]] Site* get() {
        const std::lock_guard<std::mutex> lock(mutex_);
        site_->retain();
        return site_;
    }
    void replace(Site* site) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            std::swap(site_, site);
            serial_.fetch_add(1, std::memory_order_relaxed);
        }
        site->release();
    }

private:
    std::mutex mutex_;  // taken when a site is replaced, never for a request
    Site* site_;
    std::atomic<std::uint32_t> serial_{1};
};

/// Answers by status, counted by one thread and read by others.
class StatusCounters {
public:
    void add(unsigned status, unsigned count) noexcept {
        std::atomic<std::uint64_t>& value = values_[status < values_.size() ? status : 0];
        value.store(value.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t get(unsigned status) const noexcept { return values_[status].load(std::memory_order_relaxed); }
    static constexpr unsigned statuses = 600;

private:
    std::array<std::atomic<std::uint64_t>, statuses> values_{};
};

/// HTTP for one reactor: chooses a response for each request and hands out its bytes.
class HttpProtocol {
public:
    /// Per connection. `pending` is the answer to a request whose content still arrives.
    struct State {
        http::Body body;
        std::uint32_t requests : 29;
        std::uint32_t pending_is_head : 1;
        std::uint32_t pending_then : 2;
        std::uint32_t pending : 24;
        std::uint32_t pending_serial : 8;
    };
    using Partial = http::Resume;
    using Response = ceiling::Response;
    using Reply = reactor::Reply<Response>;
    using Run = reactor::Run<Response>;

    HttpProtocol(Current& current, const Options& options)
        : current_(current),
          limits_{static_cast<std::size_t>(options.head_bytes_max)},
          body_bytes_max_(options.body_bytes_max),
          requests_max_(static_cast<std::uint32_t>(options.requests_max)),
          scratch_(scratch_bytes) {
        adopt_site();
    }
    ~HttpProtocol() { site_->release(); }
    HttpProtocol(const HttpProtocol&) = delete;
    HttpProtocol& operator=(const HttpProtocol&) = delete;

    // ---- bytes -> response

    Reply answer(State& state, std::string_view input, Partial& partial) {
        if (!state.body.done()) return take_content(state, input);
        // A memo of the last head, answered without a second parse, was tried: 0.96 of the CPU of one of 16 pipelined
        // requests, 0.99 of a kept-alive one. It would only flatter clients that repeat themselves byte for byte.
        http::Request request;
        const http::Result head = http::scan(input, request, partial, limits_);
        if (head.status == http::Status::incomplete) {
            // Of what stands behind empty lines the scanner keeps nothing; if time runs out, the method must be known.
            if (head.consumed != 0) static_cast<void>(http::scan(input.substr(head.consumed), request, partial, limits_));
            return {head.consumed, nullptr, Reply::Then::wait};
        }
        if (head.status != http::Status::complete) return reject(head.status, request.method == http::Method::head);
        const http::Result content = http::Body::begin(state.body, request, body_bytes_max_);
        const bool whole = content.status == http::Status::complete;
        if (!whole && content.status != http::Status::incomplete) {
            state.body = {};
            return reject(content.status, request.method == http::Method::head);
        }
        const bool ends = is_last(state) || (whole && is_parting(input, head.consumed));
        const auto then = !request.keep_alive ? Reply::Then::close : ends ? Reply::Then::refuse : Reply::Then::go_on;
        if (request.expect_other) {
            state.body = {};
            return {head.consumed, form(site_->expectation_failed, Persistence::close, request), Reply::Then::refuse};
        }
        const Persistence persistence = then != Reply::Then::go_on   ? Persistence::close
                                        : request.version_minor == 0 ? Persistence::keep_alive
                                                                     : Persistence::silent;
        const Response* response = choose(request, persistence);
        if (whole) return {head.consumed, response, then};
        state.pending = response->number & 0xffffffU;
        state.pending_is_head = request.method == http::Method::head ? 1 : 0;
        state.pending_then = static_cast<unsigned>(then) & 3U;
        state.pending_serial = serial_ & 0xffU;
        // The client waits for our word only if it has not begun to send already (RFC 9110 10.1.1).
        const bool waits = request.expect_continue && head.consumed == input.size();
        return {head.consumed, waits ? site_->go_ahead : nullptr, Reply::Then::go_on};
    }

    [[nodiscard]] static bool inside(const State& state) noexcept { return !state.body.done(); }

    [[nodiscard]] const Response* timed_out(const State& state, const Partial& partial, bool begun) const {
        if (!begun) return nullptr;
        const bool is_head = inside(state) ? state.pending_is_head != 0 : partial.method == http::Method::head;
        return site_->request_timeout[static_cast<std::size_t>(Persistence::close)][is_head ? 1 : 0];
    }

    // ---- response -> bytes

    reactor::Bytes bytes(Run& run) {
        const Response& response = *run.response;
        const bool inside_head = run.offset != 0 && run.offset < response.head.size();
        if (response.hot != 0 && response.site == site_ && !(inside_head && run.stamp != stamp())) return replicas(run);
        if (run.offset == 0) run.stamp = stamp();
        if (run.offset < response.head.size()) return head_of(run);
        const std::uint64_t at = run.offset - response.head.size();
        if (response.file_bytes == 0) return {response.content.data() + at, response.content.size() - at, -1, 0, false};
        return {nullptr, static_cast<std::size_t>(response.file_bytes - at), response.site->file(), response.file_offset + at,
                false};
    }

    [[nodiscard]] static std::uint64_t size(const Response& response) noexcept { return response.size(); }
    void answered(const Response& response, unsigned count) noexcept { statuses_.add(response.status, count); }
    static void hold(const Response& response) noexcept { response.site->retain(); }
    static void release(const Response& response) noexcept { response.site->release(); }

    // ---- once per turn

    void tick(std::int64_t seconds) {
        now_ = seconds;
        if (current_.serial() != serial_) adopt_site();
    }
    void drain() noexcept { draining_ = true; }

    [[nodiscard]] const StatusCounters& statuses() const noexcept { return statuses_; }

private:
    /// Copies of one response, back to back, so that n answers are one send of n times its size.
    struct Replicas {
        std::string bytes;
        std::uint64_t copies = 0;
        std::int64_t dated = -1;  ///< the second that stands in Date
    };
    /// 64 KiB: 400 copies of a hello, more than one recv of pipelined requests can ask for.
    static constexpr std::size_t replica_bytes = 65536;
    /// Head and content of what is not replicated are put together here.
    static constexpr std::size_t scratch_bytes = head_bytes_contiguous + content_bytes_contiguous;

    // ---- choosing

    [[nodiscard]] static const Response* form(const Forms& forms, Persistence persistence, const http::Request& request) {
        return forms[static_cast<std::size_t>(persistence)][request.method == http::Method::head ? 1 : 0];
    }

    [[nodiscard]] const Response* choose(const http::Request& request, Persistence persistence) const {
        switch (request.method) {
        case http::Method::get:
        case http::Method::head:
            if (site_->tree) return find(request, persistence);
            return form(site_->ok, persistence, request);
        case http::Method::post:
        case http::Method::put:
        case http::Method::patch:
        case http::Method::delete_: return form(site_->tree ? site_->method_not_allowed : site_->ok, persistence, request);
        case http::Method::options: return form(site_->allowed, persistence, request);
        case http::Method::trace:
        case http::Method::connect: return form(site_->method_not_allowed, persistence, request);
        case http::Method::unknown: break;
        }
        return form(site_->not_implemented, persistence, request);
    }

    [[nodiscard]] const Response* find(const http::Request& request, Persistence persistence) const {
        auto found = site_->resources.find(request.target);
        if (found == site_->resources.end()) {
            const std::optional<std::string> path = path_of(request.target);
            if (path) found = site_->resources.find(*path);
        }
        if (found == site_->resources.end()) return form(site_->not_found, persistence, request);
        const Resource& resource = found->second;
        const bool unchanged = !resource.redirect && is_unchanged(resource, request);
        return form(unchanged ? resource.not_modified : resource.found, persistence, request);
    }

    [[nodiscard]] Reply reject(http::Status why, bool is_head) const {
        const auto index = static_cast<std::size_t>(why);
        return {0, site_->rejected[index][is_head ? 1 : 0], Reply::Then::refuse};
    }

    /// Counts the request; true if the connection has had its share.
    bool is_last(State& state) const noexcept {
        if (requests_max_ == 0) return false;
        ++state.requests;
        return state.requests >= requests_max_;
    }

    /// The server is leaving and this is the last request it has in hand: its answer says so.
    [[nodiscard]] bool is_parting(std::string_view input, std::size_t consumed) const noexcept {
        return draining_ && consumed == input.size();
    }

    Reply take_content(State& state, std::string_view input) {
        const http::Result taken = state.body.discard(input);
        if (taken.status == http::Status::incomplete) return {taken.consumed, nullptr, Reply::Then::wait};
        if (taken.status != http::Status::complete) {
            state.body = {};
            return reject(taken.status, state.pending_is_head != 0);
        }
        const auto then = static_cast<Reply::Then>(state.pending_then);
        // Its answer belongs to a site that was replaced; after 256 reloads in the midst of one content the serial says otherwise.
        if (state.pending_serial != (serial_ & 0xffU) || state.pending >= site_->count()) {
            return {taken.consumed, site_->unavailable[static_cast<std::size_t>(Persistence::close)][state.pending_is_head],
                    Reply::Then::refuse};
        }
        const Response* const response = site_->at(state.pending);
        if (then == Reply::Then::go_on && is_parting(input, taken.consumed))
            return {taken.consumed, response->closing, Reply::Then::refuse};
        return {taken.consumed, response, then};
    }

    // ---- bytes

    [[nodiscard]] std::uint16_t stamp() const noexcept { return static_cast<std::uint16_t>(now_); }

    /// Date is brought up to date only in what is sent, once a second; the copies behind the first are cold lines
    /// nobody touches until somebody pipelines.
    reactor::Bytes replicas(Run& run) {
        Replicas& r = replicas_[run.response->hot - 1U];
        const std::uint64_t size = run.response->size();
        if (r.dated != now_) write_dates(r, *run.response);
        run.stamp = stamp();
        const std::uint64_t copies = std::min<std::uint64_t>(run.count, r.copies);
        return {r.bytes.data() + run.offset, static_cast<std::size_t>(copies * size - run.offset), -1, 0, false};
    }

    void write_dates(Replicas& r, const Response& response) const {
        r.dated = now_;
        if (response.date_at == 0) return;
        const auto size = static_cast<std::size_t>(response.size());
        char* const first = r.bytes.data() + response.date_at;
        write_date(first, now_);
        for (std::uint64_t i = 1; i < r.copies; ++i) std::memcpy(first + i * size, first, date_bytes);
    }

    /// The head from run.offset on, with the Date of the second in which its first byte was sent: a half-sent response
    /// must not mix two seconds. Content that is in memory follows it in the same bytes.
    reactor::Bytes head_of(const Run& run) {
        const Response& response = *run.response;
        response.head.copy(scratch_.data(), response.head.size());
        response.content.copy(scratch_.data() + response.head.size(), response.content.size());
        if (response.date_at != 0) {
            const auto age = static_cast<std::int16_t>(stamp() - run.stamp);  // less than 9 hours either way
            write_date(scratch_.data() + response.date_at, now_ - age);
        }
        const std::size_t ready = response.head.size() + response.content.size();
        return {scratch_.data() + run.offset, ready - static_cast<std::size_t>(run.offset), -1, 0, response.file_bytes != 0};
    }

    void adopt_site() {
        serial_ = current_.serial();  // before the site: if it is replaced in between, the next turn adopts it again
        Site* const fresh = current_.get();
        if (site_ != nullptr) site_->release();
        site_ = fresh;
        replicas_.clear();
        for (const Response* response : site_->hot) {
            Replicas r;
            const auto size = static_cast<std::size_t>(response->size());
            r.copies = std::max<std::size_t>(1, replica_bytes / size);
            for (std::uint64_t i = 0; i < r.copies; ++i) (r.bytes += response->head) += response->content;
            replicas_.push_back(std::move(r));
        }
    }

    Current& current_;
    Site* site_ = nullptr;
    std::uint32_t serial_ = 0;
    const http::Limits limits_;
    const std::uint64_t body_bytes_max_;
    const std::uint32_t requests_max_;
    bool draining_ = false;
    std::int64_t now_ = 0;
    std::vector<Replicas> replicas_;
    std::vector<char> scratch_;
    StatusCounters statuses_;
};

using Group = reactor::Group<HttpProtocol>;
using Reactor = reactor::Reactor<HttpProtocol>;

// ----------------------------------------------------------------------------------------------------- how many threads

struct ThreadPlan {
    unsigned threads = 1;
    std::string why;
};

/// CPUs' worth of time that the control group of this process may use, rounded up; 0: no limit. Looks at both versions
/// (cgroups(7)) and at every group above, for the tightest limit holds.
unsigned quota_cpus() {
    unsigned least = 0;
    const auto take = [&](double quota, double period) {
        if (quota <= 0 || period <= 0) return;
        const auto cpus = static_cast<unsigned>((quota + period - 1) / period);
        if (least == 0 || cpus < least) least = std::max(1U, cpus);
    };
    const auto first_line = [](const std::string& path) {
        std::array<char, 256> line{};
        std::FILE* file = std::fopen(path.c_str(), "re");
        if (file == nullptr) return std::string();
        if (std::fgets(line.data(), static_cast<int>(line.size()), file) == nullptr) line[0] = '\0';
        std::fclose(file);
        return std::string(line.data());
    };
    std::FILE* groups = std::fopen("/proc/self/cgroup", "re");
    if (groups == nullptr) return 0;
    std::array<char, 4096> line{};
    while (std::fgets(line.data(), static_cast<int>(line.size()), groups) != nullptr) {
        std::string text = line.data();
        if (!text.empty() && text.back() == '\n') text.pop_back();
        const std::size_t one = text.find(':');
        const std::size_t two = text.find(':', one + 1);
        if (one == std::string::npos || two == std::string::npos) continue;
        const std::string controllers = "," + text.substr(one + 1, two - one - 1) + ",";
        std::string path = text.substr(two + 1);
        const bool unified = controllers == ",,";
        if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
        for (;;) {
            const std::string group = (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu") + path;
            double quota = 0;
            double period = 0;
            if (unified) {
                if (std::sscanf(first_line(group + "/cpu.max").c_str(), "%lf %lf", &quota, &period) == 2) take(quota, period);
            } else if (std::sscanf(first_line(group + "/cpu.cfs_quota_us").c_str(), "%lf", &quota) == 1 &&
                       std::sscanf(first_line(group + "/cpu.cfs_period_us").c_str(), "%lf", &period) == 1) {
                take(quota, period);
            }
            const std::size_t slash = path.rfind('/');
            if (path.empty() || slash == std::string::npos) break;
            path.resize(slash);
        }
    }
    std::fclose(groups);
    return least;
}

/// CPUs that the affinity mask of this process allows (sched_getaffinity(2)); at least one.
std::vector<int> allowed_cpus() {
    // 8192: the most CPUs a kernel is built for (NR_CPUS of x86-64); a smaller set fails with EINVAL on such a box.
    constexpr int cpus_max = 8192;
    std::vector<int> cpus;
    cpu_set_t* set = CPU_ALLOC(cpus_max);
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus_max);
    CPU_ZERO_S(bytes, set);
    if (::sched_getaffinity(0, bytes, set) == 0) {
        for (int cpu = 0; cpu < cpus_max; ++cpu) {
            if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
        }
    }
    CPU_FREE(set);
    if (cpus.empty()) cpus.push_back(0);
    return cpus;
}

ThreadPlan plan_threads(const Options& options) {
    if (options.threads != 0) return {options.threads, "as asked"};
    const auto allowed = static_cast<unsigned>(allowed_cpus().size());
    const unsigned quota = quota_cpus();
    if (quota != 0 && quota < allowed) return {quota, format("CPU quota of the control group; %u CPUs are allowed", allowed)};
    return {allowed, "one per CPU this process may use"};
}

void pin_to(int cpu) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpu) + 1);
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpu) + 1);
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(cpu, bytes, set);
    if (::sched_setaffinity(0, bytes, set) != 0) {
        std::fprintf(stderr, "ceiling: --pin: CPU %d: %s; the thread stays unbound\n", cpu, std::strerror(errno));
    }
    CPU_FREE(set);
}

// ------------------------------------------------------------------------------------------------------------ listeners

/// An address as the user wrote it and as the kernel takes it.
struct Address {
    std::string text;
    sockaddr_storage storage{};
    socklen_t length = 0;

    [[nodiscard]] int family() const noexcept { return storage.ss_family; }
    [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
    [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
    [[nodiscard]] std::string path() const { return reinterpret_cast<const sockaddr_un*>(&storage)->sun_path; }
};

/// "127.0.0.1:8080", "[::1]:8080" or "unix:/run/x": throws Failure with status 2.
Address parse_address(const std::string& option, const std::string& text) {
    Address address;
    address.text = text;
    if (text.compare(0, 5, "unix:") == 0) {
        auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
        const std::string path = text.substr(5);
        if (path.empty() || path.size() >= sizeof un->sun_path) {
            misuse(option + " " + text + format(": expected a path of 1 to %zu bytes", sizeof un->sun_path - 1));
        }
        un->sun_family = AF_UNIX;
        std::memcpy(un->sun_path, path.c_str(), path.size() + 1);
        address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
        return address;
    }
    const std::size_t colon = text.rfind(':');
    std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
    const std::string digits = colon == std::string::npos ? text : text.substr(colon + 1);
    unsigned port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    const bool is_port = error == std::errc() && end == digits.data() + digits.size() && !digits.empty() && port <= 65535;
    if (colon == std::string::npos || !is_port) {
        misuse(option + " " + text + ": expected ADDR:PORT, [ADDR]:PORT or unix:PATH, with a port from 0 to 65535");
    }
    if (host == "localhost") host = "127.0.0.1";
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (bracketed && ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(static_cast<std::uint16_t>(port));
        address.length = sizeof *v6;
    } else if (!bracketed && ::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(static_cast<std::uint16_t>(port));
        address.length = sizeof *v4;
    } else {
        misuse(option + " " + text + ": '" + host + "' is not a numeric address; expected 127.0.0.1, 0.0.0.0, [::1] or [::]");
    }
    return address;
}

/// What a bound or inherited socket listens on, port included.
std::string local_name(int fd) {
    Address local;
    local.length = sizeof local.storage;
    if (::getsockname(fd, local.get(), &local.length) != 0) return "?";
    std::array<char, INET6_ADDRSTRLEN> host{};
    if (local.family() == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(&local.storage);
        return format("%s:%u", ::inet_ntop(AF_INET, &v4->sin_addr, host.data(), host.size()), ntohs(v4->sin_port));
    }
    if (local.family() == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&local.storage);
        return format("[%s]:%u", ::inet_ntop(AF_INET6, &v6->sin6_addr, host.data(), host.size()), ntohs(v6->sin6_port));
    }
    return "unix:" + local.path();
}

void set_flag(int fd, int level, int name, int value) {
    static_cast<void>(::setsockopt(fd, level, name, &value, sizeof value));
}

/// What accepted sockets inherit from their listener (tcp(7)): no system call per connection.
void tune_listener(int fd, const Options& options) {
    set_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1);  // a short answer must not wait for the ACK of the one before
    if (!options.defer_accept) return;
    // Seconds a connection may wait for its first bytes in the kernel, at no cost to us (tcp(7)).
    set_flag(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, std::max(1, static_cast<int>(options.head_timeout_ms / 1000)));
}

Fd bind_tcp(const Address& address, bool reuse_port) {
    Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) fail("listen " + address.text);
    set_flag(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // connections of an earlier run may still be in TIME_WAIT
    if (address.family() == AF_INET6) set_flag(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);  // so that 0.0.0.0 can stand beside it
    if (reuse_port) set_flag(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1);
    if (::bind(fd.get(), address.get(), address.length) != 0) fail("listen " + address.text);
    return fd;
}

/// One listening socket per thread on the same port. With SO_REUSEPORT a forgotten instance would share it silently, so
/// unless that is asked for a bind without it comes first: it fails while anybody else listens there.
std::vector<Fd> listen_tcp(Address address, unsigned threads, const Options& options) {
    std::vector<Fd> sockets;
    if (!options.reuse_port) {
        Fd probe = bind_tcp(address, false);
        if (::listen(probe.get(), 1) != 0) fail("listen " + address.text);
    }
    const bool share = options.reuse_port || threads > 1;
    for (unsigned i = 0; i < threads; ++i) {
        Fd fd = bind_tcp(address, share);
        tune_listener(fd.get(), options);
        if (::listen(fd.get(), static_cast<int>(options.backlog)) != 0) fail("listen " + address.text);
        socklen_t length = sizeof address.storage;  // the port that the kernel chose for 0 holds for the other threads too
        if (::getsockname(fd.get(), address.get(), &length) != 0) fail("getsockname");
        sockets.push_back(std::move(fd));
    }
    return sockets;
}

Fd listen_unix(const Address& address, const Options& options) {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) fail("listen " + address.text);
    if (::bind(fd.get(), address.get(), address.length) != 0) {
        if (errno != EADDRINUSE) fail("listen " + address.text);
        // A socket file outlives its server. If it is one and nobody answers behind it, it is a leftover.
        struct stat status {};
        if (::lstat(address.path().c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) fail("listen " + address.text, EADDRINUSE);
        const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::connect(probe.get(), address.get(), address.length) == 0 || errno != ECONNREFUSED)
            fail("listen " + address.text, EADDRINUSE);
        if (::unlink(address.path().c_str()) != 0 || ::bind(fd.get(), address.get(), address.length) != 0)
            fail("listen " + address.text);
    }
    if (::listen(fd.get(), static_cast<int>(options.backlog)) != 0) fail("listen " + address.text);
    return fd;
}

/// A Unix socket's file, removed with this object unless a successor has put its own in that place.
class UnixPath {
public:
    explicit UnixPath(std::string path) : path_(std::move(path)) { ::lstat(path_.c_str(), &bound_); }
    UnixPath(UnixPath&& other) noexcept : path_(std::exchange(other.path_, {})), bound_(other.bound_) {}
    UnixPath(const UnixPath&) = delete;
    UnixPath& operator=(const UnixPath&) = delete;
    UnixPath& operator=(UnixPath&&) = delete;
    ~UnixPath() {
        struct stat now {};
        const bool same = ::lstat(path_.c_str(), &now) == 0 && now.st_dev == bound_.st_dev && now.st_ino == bound_.st_ino;
        if (same) ::unlink(path_.c_str());
    }

private:
    std::string path_;  ///< empty: moved from, and no file is called so
    struct stat bound_ {};
};

/// Every listening socket of the process.
struct Listeners {
    std::vector<std::vector<Fd>> own;  ///< per address, one per thread; given away to the reactors
    std::vector<Fd> shared;            ///< Unix sockets and inherited ones: all reactors listen on the same, the last closes it
    std::vector<std::string> names;
    std::vector<UnixPath> paths;  ///< of Unix sockets
};

/// Sockets that a service manager opened for us (sd_listen_fds(3)): descriptors from 3 on, if LISTEN_PID is our own.
void take_inherited(Listeners& listeners, const Options& options) {
    const char* pid = std::getenv("LISTEN_PID");
    const char* count = std::getenv("LISTEN_FDS");
    if (pid == nullptr || count == nullptr || std::strtol(pid, nullptr, 10) != ::getpid()) return;
    const long sockets = std::strtol(count, nullptr, 10);
    for (int fd = 3; fd < 3 + sockets; ++fd) {
        int listening = 0;
        socklen_t length = sizeof listening;
        if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0) fail(format("LISTEN_FDS: descriptor %d", fd));
        if (listening == 0) throw Failure{1, format("LISTEN_FDS: descriptor %d is not a listening socket", fd)};
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        ::fcntl(fd, F_SETFL, O_NONBLOCK);
        const std::string name = local_name(fd);
        if (name.compare(0, 5, "unix:") != 0) tune_listener(fd, options);
        listeners.names.push_back(name + " (inherited)");
        listeners.shared.emplace_back(fd);
    }
    ::unsetenv("LISTEN_PID");
    ::unsetenv("LISTEN_FDS");
}

/// The addresses of the command line.
struct Addresses {
    std::vector<Address> listen;
    std::optional<Address> metrics;
};

Addresses parse_addresses(const Options& options) {
    Addresses addresses;
    for (const std::string& text : options.listen) addresses.listen.push_back(parse_address("--listen", text));
    if (options.metrics.empty()) return addresses;
    addresses.metrics = parse_address("--metrics", options.metrics);
    if (addresses.metrics->family() == AF_UNIX) misuse("--metrics " + options.metrics + ": expected ADDR:PORT");
    return addresses;
}

Listeners open_listeners(std::vector<Address> addresses, const Options& options, unsigned threads) {
    Listeners listeners;
    take_inherited(listeners, options);
    if (addresses.empty() && listeners.shared.empty()) addresses.push_back(parse_address("--listen", "127.0.0.1:8080"));
    for (const Address& address : addresses) {
        if (address.family() == AF_UNIX) {
            listeners.shared.push_back(listen_unix(address, options));
            listeners.paths.emplace_back(address.path());
            listeners.names.push_back(address.text);
        } else {
            listeners.own.push_back(listen_tcp(address, threads, options));
            listeners.names.push_back(local_name(listeners.own.back().front().get()));
        }
    }
    return listeners;
}

// -------------------------------------------------------------------------------------------------------------- figures

/// All counters of the process at one moment.
struct Totals {
    std::array<std::uint64_t, reactor::counts> counts{};
    std::array<std::uint64_t, StatusCounters::statuses> statuses{};
    std::vector<std::uint64_t> answered;  ///< per thread
    std::vector<std::uint32_t> held;      ///< connections per thread
    std::uint64_t user_us = 0, system_us = 0;

    [[nodiscard]] std::uint64_t of(reactor::Count which) const { return counts[static_cast<std::size_t>(which)]; }
    [[nodiscard]] std::uint64_t open() const {
        std::uint64_t sum = 0;
        for (const std::uint32_t connections : held) sum += connections;
        return sum;
    }
    [[nodiscard]] std::uint64_t status_range(unsigned from, unsigned to) const {
        std::uint64_t sum = 0;
        for (unsigned status = from; status < to; ++status) sum += statuses[status];
        return sum;
    }
    /// Connections that ended because somebody was too slow.
    [[nodiscard]] std::uint64_t timeouts() const {
        using reactor::Count;
        return of(Count::timeout_head) + of(Count::timeout_body) + of(Count::timeout_idle) + of(Count::timeout_write) +
               of(Count::timeout_linger);
    }
};

/// One thread: a protocol and its reactor.
struct Worker {
    Worker(Group& group, unsigned seat, Current& current, const Options& options)
        : protocol(current, options), loop(group, seat, protocol) {}
    HttpProtocol protocol;
    Reactor loop;
};

Totals take_totals(const Group& group, const std::deque<Worker>& workers) {
    Totals totals;
    for (unsigned i = 0; i < workers.size(); ++i) {
        for (std::size_t c = 0; c < reactor::counts; ++c)
            totals.counts[c] += workers[i].loop.counters().get(static_cast<reactor::Count>(c));
        for (unsigned s = 0; s < StatusCounters::statuses; ++s) totals.statuses[s] += workers[i].protocol.statuses().get(s);
        totals.answered.push_back(workers[i].loop.counters().get(reactor::Count::answered));
        totals.held.push_back(group.held(i));
    }
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto microseconds = [](const timeval& t) {
        return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000U + static_cast<std::uint64_t>(t.tv_usec);
    };
    totals.user_us = microseconds(usage.ru_utime);
    totals.system_us = microseconds(usage.ru_stime);
    return totals;
}

/// Every counter by name, for SIGUSR1 and at exit.
std::string totals_text(const Totals& totals) {
    std::string text = "counters:\n";
    for (std::size_t c = 0; c < reactor::counts; ++c) {
        text += format("  %-18s %" PRIu64 "\n", std::string(reactor::count_names[c]).c_str(), totals.counts[c]);
    }
    for (unsigned s = 0; s < StatusCounters::statuses; ++s) {
        if (totals.statuses[s] != 0) text += format("  status_%-11u %" PRIu64 "\n", s, totals.statuses[s]);
    }
    text += format("  %-18s %.3f\n  %-18s %.3f\n", "user_seconds", static_cast<double>(totals.user_us) / 1e6, "system_seconds",
                   static_cast<double>(totals.system_us) / 1e6);
    for (std::size_t i = 0; i < totals.answered.size(); ++i) {
        text += format("  thread %-3zu %8u open %12" PRIu64 " answered\n", i, totals.held[i], totals.answered[i]);
    }
    return text;
}

/// The same in the text format of Prometheus, version 0.0.4.
std::string metrics_text(const Totals& totals) {
    std::string text;
    const auto describe = [&](const std::string& name, const char* type, const char* help) {
        text += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
    };
    for (std::size_t c = 0; c < reactor::counts; ++c) {
        const std::string name = "ceiling_" + std::string(reactor::count_names[c]) + "_total";
        describe(name, "counter", reactor::count_helps[c]);
        text += name + format(" %" PRIu64 "\n", totals.counts[c]);
    }
    describe("ceiling_responses_total", "counter", "Responses by status code.");
    for (unsigned s = 0; s < StatusCounters::statuses; ++s) {
        if (totals.statuses[s] != 0) text += format("ceiling_responses_total{code=\"%u\"} %" PRIu64 "\n", s, totals.statuses[s]);
    }
    describe("ceiling_connections", "gauge", "Open connections by thread.");
    for (std::size_t i = 0; i < totals.held.size(); ++i)
        text += format("ceiling_connections{thread=\"%zu\"} %u\n", i, totals.held[i]);
    describe("ceiling_thread_answered_total", "counter", "Responses by thread.");
    for (std::size_t i = 0; i < totals.answered.size(); ++i) {
        text += format("ceiling_thread_answered_total{thread=\"%zu\"} %" PRIu64 "\n", i, totals.answered[i]);
    }
    describe("ceiling_cpu_seconds_total", "counter", "CPU time of the process.");
    text += format("ceiling_cpu_seconds_total{mode=\"user\"} %.6f\nceiling_cpu_seconds_total{mode=\"system\"} %.6f\n",
                   static_cast<double>(totals.user_us) / 1e6, static_cast<double>(totals.system_us) / 1e6);
    return text;
}

inline constexpr const char* stats_heading =
    "   req/s   conn/s   open   MB/s-in  MB/s-out    4xx/s    5xx/s  reset/s  slow/s   us%   sy%  balance\n";

/// One line of --stats: what happened between two moments. CPU is of one CPU, as in top(1); balance is the busiest
/// thread's answers over the mean, 1.00 at best.
std::string stats_line(const Totals& before, const Totals& now, double seconds) {
    using reactor::Count;
    const auto rate = [&](std::uint64_t a, std::uint64_t b) { return static_cast<double>(b - a) / seconds; };
    const auto count_rate = [&](Count which) { return rate(before.of(which), now.of(which)); };
    double most = 0;
    double sum = 0;
    for (std::size_t i = 0; i < now.answered.size(); ++i) {
        const double answers = rate(before.answered[i], now.answered[i]);
        most = std::max(most, answers);
        sum += answers;
    }
    const double balance = sum > 0 ? most * static_cast<double>(now.answered.size()) / sum : 1.0;
    return format("%8.0f %8.0f %6" PRIu64 " %9.2f %9.2f %8.0f %8.0f %8.0f %7.0f %5.1f %5.1f %8.2f\n", count_rate(Count::answered),
                  count_rate(Count::accepted), now.open(), count_rate(Count::received_bytes) / 1e6,
                  count_rate(Count::sent_bytes) / 1e6, rate(before.status_range(400, 500), now.status_range(400, 500)),
                  rate(before.status_range(500, 600), now.status_range(500, 600)), count_rate(Count::peer_reset),
                  rate(before.timeouts(), now.timeouts()), rate(before.user_us, now.user_us) / 1e4,
                  rate(before.system_us, now.system_us) / 1e4, balance);
}

// ---------------------------------------------------------------------------------------------------------------- clerk

/// Tells a service manager about us (sd_notify(3)); nothing happens where there is none.
void notify_manager(const std::string& state) {
    const char* path = std::getenv("NOTIFY_SOCKET");
    if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(path);
    if (length >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, path, length);
    if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract name (unix(7))
    const Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    static_cast<void>(::sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)));
}

/// Signals that have come, as bits; set by handlers, taken by the clerk.
enum SignalBit : unsigned { signal_report = 1, signal_reload = 2, signal_stop = 4 };
std::atomic<unsigned> signals_come{0};
Group* group_of_process = nullptr;  ///< set before the handlers are installed

/// Only what signal-safety(7) allows: atomics and write(2).
void on_signal(int signal) {
    const int error = errno;
    const unsigned bit = signal == SIGUSR1 ? signal_report : signal == SIGHUP ? signal_reload : signal_stop;
    const unsigned before = signals_come.fetch_or(bit);
    if (bit == signal_stop) {
        if ((before & signal_stop) != 0) ::_exit(128 + signal);  // the second one: at once
        group_of_process->drain();
    } else {
        group_of_process->wake(0);
    }
    errno = error;
}

constexpr std::array<int, 4> caught_signals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

/// Installs the handlers. SIGPIPE is ignored whatever the parent left set: sendfile(2) has no MSG_NOSIGNAL.
void catch_signals() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (const int signal : caught_signals) ::sigaction(signal, &action, nullptr);
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, nullptr);
    sigset_t none;  // a parent may have left signals blocked
    sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

/// Starts a thread that is never interrupted by a signal we catch: those go to the main thread, which serves too. Throws a
/// Failure that names `what` when the system has no thread left (pthread_create(3), EAGAIN).
template <class Job>
std::thread start_thread(const std::string& what, Job job) {
    sigset_t caught;
    sigset_t before;
    sigemptyset(&caught);
    for (const int signal : caught_signals) sigaddset(&caught, signal);
    ::pthread_sigmask(SIG_BLOCK, &caught, &before);  // a thread inherits the mask: blocking in itself would be too late
    std::thread thread;
    int error = 0;
    try {
        thread = std::thread(std::move(job));
    } catch (const std::system_error& refused) {
        error = refused.code().value();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0) {
        throw Failure{1,
                      "no thread for " + what + ": " + std::strerror(error) + " (RLIMIT_NPROC and the cgroup's pids.max bound it)"};
    }
    return thread;
}

/// Does what is not serving: reports, reloads, scrapes. None of it touches the hot path: --stats and --metrics have a
/// thread that sleeps in between, a signal is answered by a thread that lives for that one errand.
class Clerk {
public:
    Clerk(const Options& options, const std::optional<Address>& metrics, Group& group, std::deque<Worker>& workers,
          Current& current)
        : options_(options), group_(group), workers_(workers), current_(current), wake_(reactor::Linux::event_create()) {
        if (!wake_) fail("eventfd");
        if (metrics) open_metrics(*metrics);
    }
    Clerk(const Clerk&) = delete;
    Clerk& operator=(const Clerk&) = delete;

    [[nodiscard]] const std::string& metrics_name() const noexcept { return metrics_name_; }

    void start() {
        if (options_.stats_ms != 0 || scrapes_) resident_ = start_thread("--stats and --metrics", [this] { work(); });
    }

    /// Called by the first reactor's thread after each turn of its loop: have signals come? A handler wakes that loop.
    void look() {
        const unsigned come = signals_come.load(std::memory_order_relaxed);
        if ((come & signal_stop) != 0 && !std::exchange(stop_told_, true)) notify_manager("STOPPING=1");
        if ((come & (signal_report | signal_reload)) == 0 || errand_runs_.load()) return;
        if (errand_.joinable()) errand_.join();
        errand_runs_.store(true);
        try {
            errand_ = start_thread("a report or a reload", [this] { run_errands(); });
        } catch (const Failure& failure) {
            take_errands();
            errand_runs_.store(false);
            std::fprintf(stderr, "ceiling: %s\n", failure.text.c_str());
        }
    }

    void stop() {
        stopping_.store(true);
        reactor::Linux::event_raise(wake_.get());
        if (resident_.joinable()) resident_.join();
        if (errand_.joinable()) errand_.join();
    }

private:
    static unsigned take_errands() { return signals_come.fetch_and(~static_cast<unsigned>(signal_report | signal_reload)); }

    void run_errands() {
        const unsigned signals = take_errands();
        if ((signals & signal_report) != 0) std::fputs(totals_text(take_totals(group_, workers_)).c_str(), stderr);
        if ((signals & signal_reload) != 0) reload();
        errand_runs_.store(false);
        group_.wake(0);  // another signal may have come meanwhile
    }

    void open_metrics(const Address& address) {
        std::vector<Fd> sockets = listen_tcp(address, 1, Options{});
        scrapes_ = std::move(sockets.front());
        set_flag(scrapes_.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, 0);
        metrics_name_ = local_name(scrapes_.get());
    }

    void work() {
        Totals before = take_totals(group_, workers_);
        std::uint32_t printed_ms = reactor::Linux::now_ms();
        unsigned lines = 0;
        while (!stopping_.load()) {
            std::array<pollfd, 2> waits{{{wake_.get(), POLLIN, 0}, {scrapes_.get(), POLLIN, 0}}};
            int timeout = -1;
            if (options_.stats_ms != 0) {
                timeout = std::max(0, static_cast<int>(printed_ms + options_.stats_ms - reactor::Linux::now_ms()));
            }
            ::poll(waits.data(), scrapes_ ? 2 : 1, timeout);
            if ((waits[0].revents & POLLIN) != 0) reactor::Linux::event_clear(wake_.get());
            if ((waits[1].revents & POLLIN) != 0) answer_scrape();
            const std::uint32_t now_ms = reactor::Linux::now_ms();
            if (options_.stats_ms == 0 || now_ms - printed_ms < options_.stats_ms) continue;
            Totals now = take_totals(group_, workers_);
            if (lines++ % 20 == 0) std::fputs(stats_heading, stdout);
            std::fputs(stats_line(before, now, static_cast<double>(now_ms - printed_ms) / 1e3).c_str(), stdout);
            std::fflush(stdout);
            before = std::move(now);
            printed_ms = now_ms;
        }
    }

    /// All or nothing: the new site replaces the old one only when all of it could be read.
    void reload() {
        notify_manager("RELOADING=1");
        try {
            Site* const site = Site::load(options_);
            const std::size_t paths = site->resources.size();
            const std::uint64_t bytes = site->bytes;
            current_.replace(site);                                       // from here on it may be gone again
            for (unsigned i = 0; i < group_.size(); ++i) group_.wake(i);  // a thread that sleeps would keep the old one
            std::fprintf(stderr, "ceiling: reloaded: %zu paths, %" PRIu64 " bytes\n", paths, bytes);
        } catch (const Failure& failure) {
            std::fprintf(stderr, "ceiling: not reloaded, the old content stays: %s\n", failure.text.c_str());
        } catch (const std::bad_alloc&) {
            std::fprintf(stderr, "ceiling: not reloaded, the old content stays: out of memory\n");
        }
        notify_manager("READY=1");
    }

    /// One scrape at a time: read a head, answer, close. A scraper that sends nothing holds it for a second.
    void answer_scrape() {
        const Fd client(::accept4(scrapes_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!client) {  // out of descriptors, perhaps: the listener stays readable, and this thread must not spin
            ::poll(nullptr, 0, static_cast<int>(reactor::rearm_ms));
            return;
        }
        const timeval second{1, 0};
        ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
        ::setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
        std::array<char, 8192> input{};
        std::size_t held = 0;
        http::Request request;
        http::Resume resume{};
        http::Result head{http::Status::incomplete, 0};
        while (head.status == http::Status::incomplete && held < input.size()) {
            const ssize_t got = ::recv(client.get(), input.data() + held, input.size() - held, 0);
            if (got <= 0) return;
            held += static_cast<std::size_t>(got);
            resume = {};
            head = http::scan({input.data(), held}, request, resume, {input.size()});
        }
        if (head.status == http::Status::incomplete) return;
        const bool good =
            head.status == http::Status::complete && (request.method == http::Method::get || request.method == http::Method::head);
        const bool found = good && (path_of(request.target) == "/metrics" || path_of(request.target) == "/");
        const std::string content = found ? metrics_text(take_totals(group_, workers_)) : "GET /metrics\n";
        std::string text = format("HTTP/1.1 %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                                  found  ? "200 OK"
                                  : good ? "404 Not Found"
                                         : "400 Bad Request",
                                  date_text(std::time(nullptr)).c_str(),
                                  found ? "text/plain; version=0.0.4; charset=utf-8" : "text/plain", content.size());
        if (request.method != http::Method::head) text += content;
        for (std::string_view left = text; !left.empty();) {
            const ssize_t sent = ::send(client.get(), left.data(), left.size(), MSG_NOSIGNAL);
            if (sent <= 0) return;
            left.remove_prefix(static_cast<std::size_t>(sent));
        }
    }

    const Options& options_;
    Group& group_;
    std::deque<Worker>& workers_;
    Current& current_;
    Fd wake_;
    Fd scrapes_;
    std::string metrics_name_;
    std::atomic<bool> stopping_{false};
    std::atomic<bool> errand_runs_{false};
    bool stop_told_ = false;
    std::thread resident_;
    std::thread errand_;
};

// ---------------------------------------------------------------------------------------------------------------- serve

/// Descriptors this process may have: the soft limit is raised to the hard one, as idle connections cost nothing else.
std::uint64_t raise_descriptor_limit() {
    constexpr rlim_t most = 1 << 20;  // the kernel's own default for fs.nr_open: a table beyond it could not be filled
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) fail("getrlimit");
    limit.rlim_cur = std::min(limit.rlim_max, most);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) fail("setrlimit");
    return limit.rlim_cur;
}

reactor::Settings plan_settings(const Options& options, unsigned threads) {
    const std::uint64_t descriptors = raise_descriptor_limit();
    // Standard streams; one epoll, one eventfd and one listener per thread and address; the clerk's eventfd and listener, the
    // file of large content, and two for errands: a scrape, a file that is read again.
    const std::uint64_t addresses = std::max<std::uint64_t>(1, options.listen.size());
    const std::uint64_t own = 3 + threads * (2 + addresses) + 1 + (options.metrics.empty() ? 0 : 1) + 1 + 2;
    if (descriptors < own + 1)
        throw Failure{1, format("RLIMIT_NOFILE: %" PRIu64 " descriptors are too few for %u threads", descriptors, threads)};
    const std::uint64_t possible = descriptors - own;
    if (options.connections_max > possible) {
        throw Failure{1, format("--max-connections %" PRIu64 ": RLIMIT_NOFILE allows %" PRIu64 " descriptors, of which %" PRIu64
                                " are left for connections",
                                options.connections_max, descriptors, possible)};
    }
    reactor::Settings settings;
    settings.descriptors_max = static_cast<std::uint32_t>(descriptors);
    settings.connections_max = static_cast<std::uint32_t>(options.connections_max != 0 ? options.connections_max : possible);
    settings.input_bytes = std::max<std::size_t>(32768, (options.head_bytes_max + 4096) / 4096 * 4096 + 4096);
    settings.head_timeout_ms = options.head_timeout_ms;
    settings.idle_timeout_ms = options.idle_timeout_ms;
    settings.drain_timeout_ms = options.drain_timeout_ms;
    settings.delay_ms = options.delay_ms;
    settings.balance = options.balance;
    return settings;
}

void print_banner(const Options& options, const Listeners& listeners, const ThreadPlan& plan, const Site& site,
                  const std::string& metrics) {
    std::string text = format("ceiling %s\n", version);
    for (const std::string& name : listeners.names) text += "  listening  " + name + "\n";
    text += format("  threads    %u (%s)%s\n", plan.threads, plan.why.c_str(), options.pin ? ", pinned" : "");
    if (site.tree) {
        text += format("  tree       %s: %zu paths, %" PRIu64 " bytes\n", options.body.c_str(), site.resources.size(), site.bytes);
    } else {
        text += format("  body       %" PRIu64 " bytes, status %u\n", site.bytes, options.status);
    }
    if (!metrics.empty()) text += "  metrics    http://" + metrics + "/metrics\n";
    for (const std::string& name : listeners.names) {
        if (name.compare(0, 5, "unix:") == 0) continue;
        const std::string url = "http://" + name.substr(0, name.find(' ')) + "/";
        text += "  try        ab -n100000 -c200 " + url + "\n             ab -k -n100000 -c200 " + url + "\n";
        const bool by_default = options.listen.empty() && listeners.shared.empty();
        if (by_default) {
            text += "  reachable from this machine only; --listen 0.0.0.0:8080 opens it to the network\n";
        }
        break;
    }
    std::fputs(text.c_str(), stderr);
}

/// The threads of all reactors but the first, which is the main thread's. They wait until every one has been started: if the
/// system refuses one, nobody has served yet.
class Crew {
public:
    Crew() = default;
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew() { join(); }

    /// Starts threads 1 to `count` - 1, each to do `work(i)`; throws a Failure when one cannot be had.
    template <class Work>
    void start(unsigned count, const Work& work) {
        for (unsigned i = 1; i < count; ++i) {
            threads_.push_back(start_thread(format("reactor %u of %u", i + 1, count), [this, &work, i] {
                { const std::lock_guard<std::mutex> wait(gate_); }
                if (serving_) work(i);
            }));
        }
    }

    void let_go() {
        serving_ = true;
        waiting_.unlock();
    }

    void join() {
        if (waiting_) waiting_.unlock();
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }

private:
    std::mutex gate_;
    std::unique_lock<std::mutex> waiting_{gate_};
    bool serving_ = false;  ///< written before the gate opens, read behind it
    std::vector<std::thread> threads_;
};

int serve(const Options& options) {
    ::tzset();  // gmtime_r would read the time zone's file while it serves
    const Addresses addresses = parse_addresses(options);
    const ThreadPlan plan = plan_threads(options);
    Current current(Site::load(options));
    const reactor::Settings settings = plan_settings(options, plan.threads);
    Listeners listeners = open_listeners(addresses.listen, options, plan.threads);
    Group group(settings, plan.threads);
    if (!group.valid()) fail("memory or descriptors for the connection table (--max-connections and --max-head bound it)");
    std::deque<Worker> workers;
    for (unsigned i = 0; i < plan.threads; ++i) {
        workers.emplace_back(group, i, current, options);
        if (!workers.back().loop.valid()) fail("memory for an input buffer");
        for (auto& sockets : listeners.own) {
            if (!workers.back().loop.listen({sockets[i].release(), false})) fail("epoll_ctl");
        }
        for (const Fd& socket : listeners.shared) {
            if (!workers.back().loop.listen({socket.get(), true})) fail("epoll_ctl");
        }
    }
    for (Fd& socket : listeners.shared) static_cast<void>(socket.release());
    Clerk clerk(options, addresses.metrics, group, workers, current);
    group_of_process = &group;
    const std::vector<int> cpus = allowed_cpus();
    const auto work = [&](unsigned i) {
        if (options.pin) pin_to(cpus[i % cpus.size()]);
        workers[i].loop.run([&, i] {
            if (i == 0) clerk.look();
        });
    };
    Crew crew;
    crew.start(plan.threads, work);
    clerk.start();
    catch_signals();
    {
        Site* const site = current.get();
        print_banner(options, listeners, plan, *site, clerk.metrics_name());
        site->release();
    }
    notify_manager("READY=1");
    crew.let_go();
    work(0);
    crew.join();
    clerk.stop();
    std::fputs(totals_text(take_totals(group, workers)).c_str(), stderr);
    return 0;
}

int run(int argc, char** argv) {
    const Options options = parse_options(argc, argv);
    if (!options.help && !options.version) return serve(options);
    std::fputs((options.help ? help_text() : version_text()).c_str(), stdout);
    if (std::fflush(stdout) != 0) fail("standard output");
    return 0;
}

}  // namespace ceiling
