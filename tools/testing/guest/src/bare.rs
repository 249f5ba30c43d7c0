// SPDX-License-Identifier: GPL-2.0
//! The board without its driver.
