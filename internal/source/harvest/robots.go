package harvest

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/resourcesync"
)

const (
	robotsMax   = 512 << 10 // bytes of a robots.txt that are read
	robotsFor   = 24 * time.Hour
	robotsAgain = 10 * time.Minute // until a robots.txt that could not be read is requested again
	sitemapsMax = 1000             // the most sitemaps of a robots.txt
	delayMost   = time.Minute
)

// A robots is the part of a host's robots.txt (RFC 9309) that matters here. Its rules
// on which pages may be read do not matter: the lists of a source are meant to be read.
// Without a robots.txt there is no delay.
type robots struct {
	delay    time.Duration // between two requests
	sitemaps []string      // absolute URLs
	failed   error         // why the file cannot be read at present; IsAway recognizes it
}

// Sitemaps returns the URLs of the sitemaps that the robots.txt of a site names, each
// once. It returns none if there is no such file. If the file cannot be read at present,
// IsAway recognizes the error.
func (g *Getter) Sitemaps(ctx context.Context, site *url.URL) ([]string, error) {
	h, err := g.turn(ctx, site)
	if err != nil {
		return nil, err
	}
	defer func() { <-h.turn }()
	if busy := h.waiting(g.now()); busy != nil {
		return nil, fmt.Errorf("the robots.txt of %s: %w", Plain(site), busy)
	}
	if h.robots.failed != nil {
		h.asked = time.Time{}
	}
	g.readRobots(ctx, h, site)
	if h.robots.failed != nil {
		return nil, fmt.Errorf("the robots.txt of %s: %w", Plain(site), h.robots.failed)
	}
	return slices.Clone(h.robots.sitemaps), ctx.Err()
}

// readRobots reads the robots.txt of a host at u, if that was not done within a day. The
// caller has the turn.
func (g *Getter) readRobots(ctx context.Context, h *host, u *url.URL) {
	if !h.asked.IsZero() && time.Since(h.asked) < robotsFor {
		return
	}
	at := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	was := h.robots.delay
	h.robots = robots{}
	for range redirectsMax + 1 {
		to, err := g.askRobots(ctx, h, at)
		if IsAway(err) {
			h.robots.failed = err
		}
		if to == nil {
			break
		}
		at = to
	}
	if ctx.Err() == nil {
		h.asked = time.Now()
	}
	if h.robots.failed != nil {
		h.robots.delay = max(h.robots.delay, was) // what it said before still counts
		if ctx.Err() == nil {
			h.asked = h.asked.Add(robotsAgain - robotsFor)
		}
	}
}

// askRobots makes one request for a robots.txt. It returns where a redirect leads.
func (g *Getter) askRobots(ctx context.Context, h *host, at *url.URL) (to *url.URL, err error) {
	if err := g.check("robots.txt", at); err != nil {
		return nil, err
	}
	resp, cancel, err := g.request(ctx, at, Version{})
	if err != nil {
		return nil, err
	}
	defer cancel()
	body := outbound.NewPaced(resp.Body, paceBytes, paceTime, cancel)
	defer resp.Body.Close()
	defer body.Stop()
	if to, err := outbound.RedirectOf(resp); to != nil || err != nil {
		return to, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, h.refused(unanswered(resp), g.now())
	}
	in, err := unpack(body)
	if err == nil {
		h.robots, err = readRobots(io.LimitReader(in, robotsMax), at, "rshub", "rspublish", "rsmirror") // use the part that could be read
	}
	if err != nil {
		err = Explain(ctx, err)
	}
	return nil, err
}

// readRobots reads a robots.txt at a URL. The delay is that of the group with one of the
// names, or else that of the group for all. Crawl-delay is not part of the standard, but
// widely used. Sitemap lines belong to no group.
func readRobots(r io.Reader, at *url.URL, names ...string) (said robots, err error) {
	var own, all time.Duration = -1, 0
	var isOwn, isAll, inGroup bool
	var tooMany error
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
		case "sitemap":
			loc, err := address(at, value)
			switch {
			case err != nil || value == "" || loc.Scheme != "https" && loc.Scheme != "http" || loc.String() == at.String() || slices.Contains(said.sitemaps, loc.String()):
			case len(said.sitemaps) == sitemapsMax:
				tooMany = resourcesync.Invalidf("a robots.txt names at most %d sitemaps", sitemapsMax)
			default:
				said.sitemaps = append(said.sitemaps, loc.String())
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
	if said.delay = all; own >= 0 {
		said.delay = own
	}
	return said, cmp.Or(lines.Err(), tooMany)
}

func isRobots(u *url.URL) bool { return u.Path == "/robots.txt" }
