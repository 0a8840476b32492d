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
	maxRobotsBytes = 512 << 10 // bytes of a robots.txt that are read
	robotsTTL      = 24 * time.Hour
	robotsRetry    = 10 * time.Minute // wait before a robots.txt that could not be read is requested again
	maxSitemaps    = 1000             // maximum number of sitemaps of a robots.txt
	maxDelay       = time.Minute
)

// A robots is the part of a host's robots.txt (RFC 9309) that matters here. Its rules about which
// pages may be read do not matter: the lists of a source are meant to be read. Without a robots.txt
// there is no delay.
type robots struct {
	delay    time.Duration // between two requests
	sitemaps []string      // absolute URLs
	err      error         // why the file cannot be read at present; IsAway recognizes it
}

// Sitemaps returns the URLs of the sitemaps that the robots.txt of a site names, each once. It
// returns none if there is no such file. If the file cannot be read at present, IsAway recognizes
// the error.
func (g *Getter) Sitemaps(ctx context.Context, site *url.URL) ([]string, error) {
	h, err := g.acquireSlot(ctx, site)
	if err != nil {
		return nil, err
	}
	defer func() { <-h.slot }()
	if busy := h.remainingWait(g.now()); busy != nil {
		return nil, fmt.Errorf("read robots.txt of %s: %w", Plain(site), busy)
	}
	if h.robots.err != nil {
		h.robotsAt = time.Time{}
	}
	g.updateRobots(ctx, h, site)
	if h.robots.err != nil {
		return nil, fmt.Errorf("read robots.txt of %s: %w", Plain(site), h.robots.err)
	}
	return slices.Clone(h.robots.sitemaps), ctx.Err()
}

// updateRobots reads the robots.txt of a host at u, unless that was done within a day. The caller
// must hold the host's slot.
func (g *Getter) updateRobots(ctx context.Context, h *host, u *url.URL) {
	if !h.robotsAt.IsZero() && time.Since(h.robotsAt) < robotsTTL {
		return
	}
	at := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	was := h.robots.delay
	h.robots = robots{}
	for range maxRedirects + 1 {
		to, err := g.requestRobots(ctx, h, at)
		if IsAway(err) {
			h.robots.err = err
		}
		if to == nil {
			break
		}
		at = to
	}
	if ctx.Err() == nil {
		h.robotsAt = time.Now()
	}
	if h.robots.err != nil {
		h.robots.delay = max(h.robots.delay, was) // its earlier delay still counts
		if ctx.Err() == nil {
			h.robotsAt = h.robotsAt.Add(robotsRetry - robotsTTL)
		}
	}
}

// requestRobots makes one request for a robots.txt. It returns the target of a redirect.
func (g *Getter) requestRobots(ctx context.Context, h *host, at *url.URL) (to *url.URL, err error) {
	if err := g.check("robots.txt", at); err != nil {
		return nil, err
	}
	resp, cancel, err := g.request(ctx, at, Version{})
	if err != nil {
		return nil, err
	}
	defer cancel()
	body := outbound.NewPacedReader(resp.Body, paceBytes, paceTime, cancel)
	defer resp.Body.Close()
	defer body.Stop()
	if to, err := outbound.RedirectOf(resp); to != nil || err != nil {
		return to, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, h.noteBusy(statusError(resp), g.now())
	}
	in, err := unpack(body)
	if err == nil {
		h.robots, err = parseRobots(io.LimitReader(in, maxRobotsBytes), at, "rshub", "rspublish", "rsmirror") // use the part that could be read
	}
	if err != nil {
		err = Explain(ctx, err)
	}
	return nil, err
}

// parseRobots parses a robots.txt at a URL. The delay is that of the group with one of the names,
// or else that of the group for all. Crawl-delay is not part of the standard, but widely used.
// Sitemap lines belong to no group.
func parseRobots(r io.Reader, at *url.URL, names ...string) (said robots, err error) {
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
			loc, err := resolveURL(at, value)
			switch {
			case err != nil || value == "" || loc.Scheme != "https" && loc.Scheme != "http" || loc.String() == at.String() || slices.Contains(said.sitemaps, loc.String()):
			case len(said.sitemaps) == maxSitemaps:
				tooMany = resourcesync.Invalidf("robots.txt has more than %d sitemaps", maxSitemaps)
			default:
				said.sitemaps = append(said.sitemaps, loc.String())
			}
		case "crawl-delay":
			inGroup = true
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil || !(seconds >= 0) {
				continue
			}
			delay := time.Duration(min(seconds, maxDelay.Seconds()) * float64(time.Second))
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
