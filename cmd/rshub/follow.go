package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
)

const followUsage = `rshub follow -set SET prints the changes of a set as they come: one a line, as
JSON.

  -set SET        the set
  -hub URL        the hub, default http://127.0.0.1:8080
  -since PLACE    where to begin: a cursor, a datetime, start, or now (the default)
  -prefix URI     only changes whose loc begins so
  -change KINDS   only these: created, updated, deleted, by comma
  -type TYPES     only these media types, by comma
  -count N        end after so many changes
  -for DURATION   end after that time, such as 1m; that is a failure if there is a
                  -count and fewer changes came

Where there are tokens, RSHUB_TOKEN is one with the right follow:SET. A hub that
cannot be reached is asked again until it answers, so nothing is missed. In the
end it says, on standard error, where to go on with -since.
`

// Of a follow that waits.
const (
	followWait     = 30 * time.Second // for the next change, by the hub
	followTimeout  = time.Minute      // for the answer
	followPause    = time.Second      // after a failure, doubling
	followPauseMax = 30 * time.Second
)

// A followed is a topic that is read page by page.
type followed struct {
	topic  string     // its URL
	query  url.Values // of the next page
	token  string
	stderr io.Writer
	pause  time.Duration // after the first failure
}

// follow prints the changes of a set until ctx ends.
func follow(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("rshub follow", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	set := flags.String("set", "", "")
	hub := flags.String("hub", "http://127.0.0.1:8080", "")
	count := flags.Int("count", 0, "")
	limit := flags.Duration("for", 0, "")
	query := url.Values{}
	for _, name := range []string{"since", "prefix", "change", "type"} {
		flags.Func(name, "", func(v string) error { query.Set(name, v); return nil })
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err = fmt.Fprint(stdout, followUsage)
		return err
	case err != nil:
		return usageError(err.Error())
	case flags.NArg() > 0 || *count < 0 || *limit < 0:
		return usageError("rshub follow -set SET: rshub follow -h explains it")
	}
	if err := changelog.CheckSet(*set); err != nil {
		return usageError("rshub follow -set SET: " + err.Error())
	}
	base, err := url.Parse(strings.TrimRight(*hub, "/"))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" {
		return usageError("-hub is a URL such as https://hub.example.org")
	}
	if !query.Has("since") {
		query.Set("since", "now")
	}
	f := &followed{
		topic: base.String() + "/sets/" + *set + "/changes", query: query, token: os.Getenv("RSHUB_TOKEN"),
		stderr: stderr, pause: followPause,
	}
	within := ctx
	if *limit > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
	}
	printed, err := f.run(within, stdout, *count)
	if since := f.query.Get("since"); printed > 0 || since != "now" && since != "start" {
		fmt.Fprintf(stderr, "rshub: go on with -since %s\n", since)
	}
	switch {
	case ctx.Err() != nil: // the usual end
		return nil
	case within.Err() != nil && printed < *count:
		return fmt.Errorf("%d changes came within %v, and not %d", printed, *limit, *count)
	case within.Err() != nil:
		return nil
	}
	return err
}

// run prints changes until ctx ends or there were count of them; 0 is no bound.
// It returns how many it printed, and why it ended before.
func (f *followed) run(ctx context.Context, stdout io.Writer, count int) (printed int, err error) {
	pause := f.pause
	for count == 0 || printed < count {
		if count > 0 {
			f.query.Set("limit", strconv.Itoa(min(count-printed, 1000)))
		}
		asked := time.Now()
		lines, next, err := f.page(ctx)
		if ctx.Err() != nil {
			return printed, ctx.Err()
		}
		if _, ok := errors.AsType[refusal](err); ok {
			return printed, err
		}
		if err != nil {
			fmt.Fprintf(f.stderr, "rshub: %v; asking again\n", err)
		} else {
			if _, err := stdout.Write(lines); err != nil {
				return printed, err
			}
			printed += bytes.Count(lines, []byte("\n"))
			first := !f.query.Has("wait")
			moved := next != f.query.Get("since")
			f.query.Set("since", next)
			f.query.Set("wait", followWait.String()) // the first page says at once where it begins
			pause = f.pause
			if first || moved || time.Since(asked) > f.pause {
				continue
			}
			// A hub that stops answers at once, and empty.
		}
		select {
		case <-ctx.Done():
			return printed, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, followPauseMax)
	}
	return printed, nil
}

// A refusal is an answer that would be the same again.
type refusal string

func (r refusal) Error() string { return string(r) }

// nextLink is where a page says what follows it.
var nextLink = regexp.MustCompile(`<[^>]*[?&]since=([^&>]+)[^>]*>; *rel="?next"?`)

// page reads the next page: changes, one a line, and the cursor after them. The
// error is a refusal, or something that may pass.
func (f *followed) page(ctx context.Context) (lines []byte, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.topic+"?"+f.query.Encode(), nil)
	if err != nil {
		return nil, "", refusal(err.Error())
	}
	req.Header.Set("Accept", "application/x-ndjson")
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if lines, err = io.ReadAll(resp.Body); err != nil {
		return nil, "", fmt.Errorf("read the changes: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, "", answered(resp.StatusCode, lines)
	}
	link := nextLink.FindStringSubmatch(strings.Join(resp.Header.Values("Link"), ", "))
	if link == nil || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		return nil, "", refusal(f.topic + " is no topic of an rshub")
	}
	if next, err = url.QueryUnescape(link[1]); err != nil {
		return nil, "", refusal("the cursor after the changes: " + err.Error())
	}
	if resp.Header.Get("RS-Diverged") != "" {
		fmt.Fprintln(f.stderr, "rshub: the memory has lost its newest changes; some may come again")
	}
	return lines, next, nil
}

// answered returns what an answer without changes means.
func answered(status int, body []byte) error {
	var p changelog.Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Detail == "" {
		p.Detail = http.StatusText(status)
	}
	text := fmt.Sprintf("the hub answered %d: %s", status, p.Detail)
	if status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout {
		return errors.New(text)
	}
	return refusal(text)
}
