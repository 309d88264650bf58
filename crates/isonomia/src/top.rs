//! `isonomia top`: the tables of `isonomia status`, again and again.

use crate::arguments::TopOptions;
use crate::table;
use crate::whole::{self, Meant, report};
use anyhow::Result;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

pub fn top(options: &TopOptions) -> Result<()> {
    let mut meant = whole::meant(&options.whole)?;
    let interval = Duration::from_nanos(options.interval.0);
    let looks = options.count.unwrap_or(u64::MAX);
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        let _screen = Screen::enter()?;
        redraw(&mut meant, interval, looks)
    } else {
        print(&mut meant, interval, looks)
    }
}

/// The state as it is now.
fn now(meant: &mut Meant) -> Result<String> {
    Ok(match meant {
        Meant::One(control, _) => table::status(&control.status()?),
        Meant::All(all) => {
            let seen = all.look();
            whole::text(&report(&all.members, &seen))
        }
    })
}

fn print(meant: &mut Meant, interval: Duration, looks: u64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for look in 0..looks {
        if look > 0 {
            std::thread::sleep(interval);
            writeln!(out)?;
        }
        out.write_all(now(meant)?.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

fn redraw(meant: &mut Meant, interval: Duration, looks: u64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for _ in 0..looks {
        let text = now(meant)?;
        let (columns, rows) = terminal::size()?;
        queue!(out, cursor::MoveTo(0, 0))?;
        for line in text.lines().take(usize::from(rows).saturating_sub(1)) {
            let line: String = line.chars().take(usize::from(columns)).collect();
            queue!(out, Clear(ClearType::UntilNewLine))?;
            write!(out, "{line}\r\n")?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        write!(out, "q ends")?;
        out.flush()?;
        if wait_for_quit(interval)? {
            break;
        }
    }
    Ok(())
}

/// Waits for `interval`; whether the user wants to end before.
fn wait_for_quit(interval: Duration) -> Result<bool> {
    let end = Instant::now() + interval;
    while event::poll(end.saturating_duration_since(Instant::now()))? {
        match event::read()? {
            Event::Key(KeyEvent { code: KeyCode::Char('q') | KeyCode::Esc, .. }) => return Ok(true),
            Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers: KeyModifiers::CONTROL, .. }) => {
                return Ok(true);
            }
            Event::Resize(..) => return Ok(false),
            _ => {}
        }
    }
    Ok(false)
}

/// The alternate screen without echo, given back when dropped.
struct Screen;

impl Screen {
    fn enter() -> Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(std::io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone; there is nobody left to tell.
        let _ = execute!(std::io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}
