package harvest

import (
	"bufio"
	"context"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	robotsMax = 512 << 10 // bytes of a robots.txt that are read
	delayMost = time.Minute
)

// crawlDelay returns how long a host wants to be left alone between requests. Of the
// host's robots.txt it reads nothing else: whoever names the list of a source has the
// source's word that it may be read. No robots.txt, no delay. The caller has the turn.
func (g *Getter) crawlDelay(ctx context.Context, u *url.URL) time.Duration {
	robots := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	if g.check("robots.txt", robots) != nil {
		return 0
	}
	resp, cancel, err := g.request(ctx, robots, Version{})
	if err != nil {
		return 0
	}
	defer cancel()
	body := newPaced(resp.Body, cancel)
	defer resp.Body.Close()
	defer body.stop()
	in, err := unpack(body)
	if err != nil || resp.StatusCode != 200 {
		return 0
	}
	return readCrawlDelay(io.LimitReader(in, robotsMax), "rshub", "rspublish")
}

// readCrawlDelay reads a robots.txt (RFC 9309). The group of one of the names counts, and
// if there is none, that of all. Crawl-delay is no part of the standard, but widely used.
func readCrawlDelay(r io.Reader, names ...string) time.Duration {
	var own, all time.Duration = -1, 0
	var isOwn, isAll, inGroup bool
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		key, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(strings.TrimPrefix(key, "\ufeff"))) {
		case "":
		case "user-agent":
			if inGroup {
				isOwn, isAll, inGroup = false, false, false
			}
			isAll = isAll || value == "*"
			for _, name := range names {
				isOwn = isOwn || strings.EqualFold(value, name)
			}
			if isOwn {
				own = max(own, 0)
			}
		case "crawl-delay":
			inGroup = true
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil || !(seconds >= 0) {
				continue
			}
			delay := time.Duration(min(seconds, delayMost.Seconds()) * float64(time.Second))
			if isOwn {
				own = delay
			}
			if isAll {
				all = delay
			}
		default:
			inGroup = true
		}
	}
	if own >= 0 {
		return own
	}
	return all
}
