// Command conformance tries a hub: does it do what WebSub and ResourceSync Change
// Notification ask of it? It plays a source and many subscribers, and says of
// each thing that a hub must do whether this hub does it. docs/conformance.md
// says how to use it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/conformance/trial"
)

const usage = `usage: conformance -hub URL -topic URL [flags]

Conformance tries a hub: it publishes to a topic, subscribes callbacks that
behave well and badly, and reports for each requirement of WebSub (W3C,
23 January 2018) and ResourceSync Change Notification (1.0.1) whether the hub
meets it.

  conformance -hub https://hub.example.org/hub -topic 'https://hub.example.org/sets/try-{}/changes'

A line of the output is a check: PASS, FAIL or SKIP, the section of the standard,
MUST, SHOULD or extra, and what is checked. Below it is why it failed or was
skipped. A failed SHOULD is reported, and the hub still conforms.

It publishes changes of resources below https://example.org/, and it leaves
subscriptions behind that end with their leases. Do not try it on topics that
others follow.

The exit status is 0 when the hub conforms, 1 when it fails a MUST or an extra,
2 when the program could not try it.

`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are what the command line says.
type options struct {
	hub      trial.Hub
	extras   bool
	checks   []check
	parallel int
	list     bool
	json     bool
	verbose  bool
}

// run is the program. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "conformance: %v; conformance -h explains\n", err)
		return 2
	}
	p := &printer{w: stdout, json: o.json, verbose: o.verbose}
	if o.list {
		for _, c := range o.checks {
			p.listed(c)
		}
		return 0
	}
	end, err := o.hub.Open()
	if err == nil {
		defer end()
		err = o.hub.Reach()
	}
	if err != nil {
		fmt.Fprintln(stderr, "conformance:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tryAll(ctx, &o.hub, o.checks, o.parallel, p.tried)
	p.summary()
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "conformance: interrupted")
		return 2
	case !p.conforms():
		return 1
	}
	return 0
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (o *options, err error) {
	o = &options{}
	f := flag.NewFlagSet("conformance", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.hub.URL, "hub", "", "`URL` of the hub, where subscriptions are asked for")
	f.StringVar(&o.hub.Topics, "topic", "", "`URL` of the topic. {} in it stands for a name: then each check has topics of its own.\nWithout {} all checks share the topic, run one after the other, and some are skipped")
	f.StringVar(&o.hub.Publishing, "publish", trial.ByHub, "`how` to publish. hub: POST a change notification to the hub with Link headers, as\nChange Notification says in 4.1; topic: POST it to the topic; a URL: POST it there; ping:\nsend hub.mode=publish to the hub, which then fetches the topic from this program (no -topic)")
	f.StringVar(&o.hub.Token, "token", "", "bearer `token` for all requests to the hub; @FILE reads it from a file")
	f.StringVar(&o.hub.PublishToken, "publish-token", "", "bearer `token` for publishing, in place of -token; @FILE reads it from a file")
	f.StringVar(&o.hub.Listen, "listen", "127.0.0.1:0", "`address` on which callbacks listen. With port 0 each check listens on ports of its own")
	f.StringVar(&o.hub.Callback, "callback", "", "base `URL` by which the hub reaches the callbacks (default: http:// and the address).\nWith it all callbacks share one address, and checks that need several are skipped")
	f.BoolVar(&o.extras, "extras", false, "the hub is an rshub: check also what rshub adds (needs {} in -topic, and RSHUB_LEASE_MIN=1s there)")
	pattern := f.String("run", "", "only checks whose name matches the `regexp`")
	levels := f.String("level", "", "only checks of these `levels`, some of must,should,extra")
	f.DurationVar(&o.hub.Patience, "timeout", 30*time.Second, "how long a check waits for what the hub has to do")
	f.IntVar(&o.parallel, "parallel", 4, "how many checks run at a time")
	f.BoolVar(&o.list, "list", false, "list the checks and do not run them")
	f.BoolVar(&o.json, "json", false, "write each check, and the summary, as a line of JSON")
	f.BoolVar(&o.verbose, "v", false, "show the requests that arrived at the callbacks of a check that failed")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, errors.New("these flags cannot be") // the flag set has said why
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag", f.Arg(0))
	}
	match, err := regexp.Compile(*pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	o.checks = slices.Clone(allChecks)
	if !o.extras && !o.list {
		o.checks = slices.DeleteFunc(o.checks, func(c check) bool { return c.level == extraLevel })
	}
	if *levels != "" {
		wanted := strings.Split(strings.ToLower(*levels), ",")
		o.checks = slices.DeleteFunc(o.checks, func(c check) bool { return !slices.Contains(wanted, strings.ToLower(c.level)) })
	}
	if o.hub.Publishing == trial.ByPing && !o.list { // a source that pings sends no notifications
		o.checks = slices.DeleteFunc(o.checks, func(c check) bool { return strings.HasPrefix(c.name, "CN ") })
	}
	o.checks = slices.DeleteFunc(o.checks, func(c check) bool { return !match.MatchString(c.name) })
	if len(o.checks) == 0 {
		return nil, fmt.Errorf("no check is left by -run %q and -level %q", *pattern, *levels)
	}
	if o.list {
		return o, nil
	}
	return o, o.complete()
}

// complete checks that the flags fit together, and reads tokens.
func (o *options) complete() error {
	h := &o.hub
	if !isURL(h.URL) {
		return errors.New("-hub has to be the hub's http or https URL")
	}
	if h.Publishing != trial.ByPing && !isURL(strings.ReplaceAll(h.Topics, "{}", "name")) {
		return errors.New("-topic has to be an http or https URL")
	}
	switch h.Publishing {
	case trial.ByHub, trial.ByTopic, trial.ByPing:
	default:
		if !isURL(h.Publishing) {
			return errors.New("-publish is hub, topic, ping or an http or https URL")
		}
	}
	if u, err := url.Parse(h.Callback); h.Callback != "" && (!isURL(h.Callback) || err != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
		return errors.New("-callback has to be an http or https URL without a path")
	}
	if host, _, err := net.SplitHostPort(h.Listen); err != nil {
		return fmt.Errorf("-listen: %w", err)
	} else if ip := net.ParseIP(host); h.Callback == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return errors.New("-listen names every address of this machine: -callback has to say which the hub reaches")
	}
	if h.Patience <= 0 || o.parallel < 1 {
		return errors.New("-timeout and -parallel have to be positive")
	}
	if o.extras && (h.Publishing == trial.ByPing || !strings.HasSuffix(h.URL, "/hub") || !strings.Contains(h.Topics, "{}") || !strings.HasSuffix(h.Topics, "/changes")) {
		return errors.New("-extras needs an rshub's URLs, BASE/hub and BASE/sets/NAME{}/changes: each check has a set of its own")
	}
	if !h.ManyTopics() {
		o.parallel = 1
	}
	h.IsRshub = o.extras
	for _, token := range []*string{&h.Token, &h.PublishToken} {
		if file, ok := strings.CutPrefix(*token, "@"); ok {
			b, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("read a token: %w", err)
			}
			*token = strings.TrimSpace(string(b))
		}
	}
	return nil
}

// isURL says whether a text is an absolute http or https URL.
func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
