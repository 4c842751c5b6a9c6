package table

// Own is the file id in the Ref of a row that an open transaction inserted itself; Row then counts that transaction's rows of
// the table, from 0. Such a Ref means nothing outside its transaction and is never logged.
const Own = ^FileID(0)
