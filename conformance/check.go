package main

import (
	"slices"
	"strings"

	"github.com/rshub/rshub/conformance/trial"
)

// What a check is worth. A hub that fails a MUST does not conform. A hub that
// fails a SHOULD conforms, and would do better. An extra is what rshub promises
// beyond the standards.
const (
	mustLevel   = "MUST"
	shouldLevel = "SHOULD"
	extraLevel  = "extra"
)

// Where checks come from.
const (
	webSub             = "WebSub"
	changeNotification = "Change Notification"
	rshub              = "rshub"
)

// A check is one thing that a hub has to do. Its name begins with the section of
// the standard that says so, of Change Notification with CN before it.
type check struct {
	level, name string
	run         func(t *trial.Trial)
}

// source takes a check's name apart: the standard, its section, and what is
// checked.
func (c check) source() (standard, section, text string) {
	standard, text = webSub, c.name
	if rest, ok := strings.CutPrefix(c.name, "CN "); ok {
		standard, text = changeNotification, rest
	}
	if text[0] >= '0' && text[0] <= '9' {
		section, text, _ = strings.Cut(text, " ")
	}
	if c.level == extraLevel {
		standard = rshub
	}
	return standard, section, text
}

// websubChecks are what the Recommendation asks of any hub.
var websubChecks = slices.Concat(requestChecks, verifyChecks, unsubscribeChecks, deliverChecks)

// allChecks are all that there are.
var allChecks = slices.Concat(websubChecks, notificationChecks, extraChecks)
