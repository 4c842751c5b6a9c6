package lock

// Mode is the strength of a lock. Rows and unique keys have those before AccessShare, tables the others.
type Mode uint8

// The modes of Postgres: "Row-Level Locks" and "Table-Level Locks" in its manual, section Explicit Locking. Updating and
// Deleting are ForNoKeyUpdate and ForUpdate of an owner that also gives the row a newer version, or ends it: only for these
// does a Fate wait, which is what somebody does who wants the row's key. Fate is never held: its request ends when it could be.
const (
	ForKeyShare Mode = iota
	ForShare
	ForNoKeyUpdate
	ForUpdate
	Updating
	Deleting
	Fate

	AccessShare
	RowShare
	RowExclusive
	ShareUpdateExclusive
	Share
	ShareRowExclusive
	Exclusive
	AccessExclusive

	modes
)

var modeNames = [modes]string{"ForKeyShare", "ForShare", "ForNoKeyUpdate", "ForUpdate", "Updating", "Deleting", "Fate", "AccessShareLock", "RowShareLock",
	"RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"}

func (m Mode) String() string { return modeNames[m] }

// fits says whether k can be locked in this mode.
func (m Mode) fits(k Key) bool { return m < modes && (m >= AccessShare) == (k.Space == TableSpace) }

// set is a set of modes, one bit each.
type set uint16

func setOf(ms ...Mode) (s set) {
	for _, m := range ms {
		s |= 1 << m
	}
	return s
}

// conflicts is, for each mode, the modes of other owners that it cannot be held together with.
var conflicts = [modes]set{
	ForKeyShare:    setOf(ForUpdate, Deleting),
	ForShare:       setOf(ForNoKeyUpdate, ForUpdate, Updating, Deleting),
	ForNoKeyUpdate: setOf(ForShare, ForNoKeyUpdate, ForUpdate, Updating, Deleting),
	ForUpdate:      setOf(ForKeyShare, ForShare, ForNoKeyUpdate, ForUpdate, Updating, Deleting),
	Updating:       setOf(ForShare, ForNoKeyUpdate, ForUpdate, Updating, Deleting),
	Deleting:       setOf(ForKeyShare, ForShare, ForNoKeyUpdate, ForUpdate, Updating, Deleting),
	Fate:           setOf(Updating, Deleting),

	AccessShare:          setOf(AccessExclusive),
	RowShare:             setOf(Exclusive, AccessExclusive),
	RowExclusive:         setOf(Share, ShareRowExclusive, Exclusive, AccessExclusive),
	ShareUpdateExclusive: setOf(ShareUpdateExclusive, Share, ShareRowExclusive, Exclusive, AccessExclusive),
	Share:                setOf(RowExclusive, ShareUpdateExclusive, ShareRowExclusive, Exclusive, AccessExclusive),
	ShareRowExclusive:    setOf(RowExclusive, ShareUpdateExclusive, Share, ShareRowExclusive, Exclusive, AccessExclusive),
	Exclusive:            setOf(RowShare, RowExclusive, ShareUpdateExclusive, Share, ShareRowExclusive, Exclusive, AccessExclusive),
	AccessExclusive:      setOf(AccessShare, RowShare, RowExclusive, ShareUpdateExclusive, Share, ShareRowExclusive, Exclusive, AccessExclusive),
}

// covering is, for each mode, the modes that make a request for it by the same owner needless: the row modes are a
// chain, of the table modes only itself counts.
var covering = [modes]set{
	ForKeyShare:    setOf(ForKeyShare, ForShare, ForNoKeyUpdate, ForUpdate, Updating, Deleting),
	ForShare:       setOf(ForShare, ForNoKeyUpdate, ForUpdate, Updating, Deleting),
	ForNoKeyUpdate: setOf(ForNoKeyUpdate, ForUpdate, Updating, Deleting),
	ForUpdate:      setOf(ForUpdate, Deleting),
	Updating:       setOf(Updating, Deleting),
	Deleting:       setOf(Deleting),

	AccessShare: setOf(AccessShare), RowShare: setOf(RowShare), RowExclusive: setOf(RowExclusive),
	ShareUpdateExclusive: setOf(ShareUpdateExclusive), Share: setOf(Share), ShareRowExclusive: setOf(ShareRowExclusive),
	Exclusive: setOf(Exclusive), AccessExclusive: setOf(AccessExclusive),
}

// Conflicts says whether two owners cannot hold the two modes at once.
func Conflicts(a, b Mode) bool { return conflicts[a]&(1<<b) != 0 }

// Changing is the mode of an owner that locks a row in m because it changes it.
func (m Mode) Changing() Mode {
	switch m {
	case ForUpdate:
		return Deleting
	case ForNoKeyUpdate:
		return Updating
	}
	return m
}
