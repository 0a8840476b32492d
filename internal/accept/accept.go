// Package accept parses the request headers Accept and Accept-Encoding (RFC 9110 section 12.5), and
// ignores invalid elements.
//
// It selects among the formats that a handler offers, without knowing any of them. All handlers use
// it, so that a header has the same meaning everywhere.
package accept

import (
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// How specifically an element of Accept matches a media type. The most specific match
// takes precedence.
const (
	matchNone  = iota // no match
	matchAny          // */*
	matchType         // text/*
	matchExact        // text/html
)

// Media returns the offer that the header Accept prefers: the one with the greatest weight, among
// equal ones the one with the most specific match, and among those the first. Offers that Accept
// does not name come last, so a client that names no offer still gets a response. An offer that
// Accept excludes (q=0) is never returned; Media returns "" if all are excluded. Offers are media
// types in lower case, without parameters. Media ignores parameters in Accept other than q.
func Media(h http.Header, offers ...string) (best string) {
	bestWeight, bestMatch := -1.0, -1
	for _, offer := range offers {
		weight, match := mediaWeight(h, offer)
		refused := match != matchNone && weight == 0
		if !refused && (weight > bestWeight || weight == bestWeight && match > bestMatch) {
			best, bestWeight, bestMatch = offer, weight, match
		}
	}
	return best
}

// Names reports whether the header Accept names a media type explicitly, not only by a wildcard,
// and does not exclude it.
func Names(h http.Header, mediaType string) bool {
	weight, match := mediaWeight(h, mediaType)
	return match == matchExact && weight > 0
}

// mediaWeight returns the weight of a media type and how specifically Accept names it.
func mediaWeight(h http.Header, mediaType string) (weight float64, match int) {
	kind, _, _ := strings.Cut(mediaType, "/")
	for e := range elements(h.Values("Accept")) {
		m := matchNone
		switch e.value {
		case mediaType:
			m = matchExact
		case kind + "/*":
			m = matchType
		case "*/*", "*": // old Java clients send the second
			m = matchAny
		}
		if m > match {
			weight, match = e.weight, m
		} else if m == match && m != matchNone {
			weight = max(weight, e.weight)
		}
	}
	return weight, match
}

// Gzip reports whether the header Accept-Encoding prefers gzip to the identity coding. A coding
// that the header does not name has the weight of "*". If "*" is missing as well, gzip is not
// acceptable and identity is.
func Gzip(h http.Header) bool {
	zipped, plain, other := -1.0, -1.0, -1.0 // not named
	for e := range elements(h.Values("Accept-Encoding")) {
		if e.parameters {
			continue // codings have no parameters
		}
		switch e.value {
		case "gzip", "x-gzip":
			zipped = max(zipped, e.weight)
		case "identity":
			plain = e.weight
		case "*":
			other = e.weight
		}
	}
	if zipped < 0 {
		zipped = other
	}
	if plain < 0 {
		plain = other
	}
	return zipped > 0 && zipped >= plain
}

// Zstd reports whether the header Accept-Encoding names zstd, and does not prefer the identity
// coding. A "*" is not sufficient, because few clients that send it support zstd.
func Zstd(h http.Header) bool {
	zstd, plain := 0.0, 0.0
	for e := range elements(h.Values("Accept-Encoding")) {
		switch e.value {
		case "zstd":
			zstd = max(zstd, e.weight)
		case "identity":
			plain = e.weight
		}
	}
	return zstd > 0 && zstd >= plain
}

// An element is a member of a header's list.
type element struct {
	value      string  // in lower case
	weight     float64 // from 0 to 1
	parameters bool    // whether it has parameters other than the weight
}

// elements yields the valid elements of a header.
func elements(lines []string) iter.Seq[element] {
	return func(yield func(element) bool) {
		for text := range splitList(strings.Join(lines, ",")) {
			value, params, err := mime.ParseMediaType(text)
			if err != nil {
				continue
			}
			e := element{value: value, weight: 1}
			if q, ok := params["q"]; ok {
				delete(params, "q")
				if e.weight, err = strconv.ParseFloat(q, 64); err != nil || !(0 <= e.weight && e.weight <= 1) {
					continue
				}
			}
			e.parameters = len(params) > 0
			if !yield(e) {
				return
			}
		}
	}
}

// splitList yields the parts of a list that are separated by commas outside quoted strings.
func splitList(list string) iter.Seq[string] {
	return func(yield func(string) bool) {
		begin, quoted := 0, false
		for i := 0; i < len(list); i++ {
			switch c := list[i]; {
			case quoted && c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case c == ',' && !quoted:
				if !yield(list[begin:i]) {
					return
				}
				begin = i + 1
			}
		}
		yield(list[begin:])
	}
}
